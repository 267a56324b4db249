#include "runtime/dispatch/build.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <c10/core/InferenceMode.h>
#include <c10/util/strides.h>
#include <fmt/format.h>

#include "core/base/pages.h"
#include "core/base/terminal.h"
#include "haul/error.h"
#include "haul/plan.h"
#include "haul/tensor_memory.h"
#include "runtime/dispatch/interception.h"
#include "runtime/dispatch/move_guard.h"
#include "runtime/dispatch/offload_file.h"
#include "runtime/dispatch/pinner.h"
#include "runtime/dispatch/sender.h"
#include "runtime/dispatch/split_linear.h"
#include "runtime/dispatch/weight_store.h"
#include "runtime/tiers/offered_memory.h"

namespace haul::runtime {
namespace {

constexpr Bytes kLoadStaging = 128 * kMiB;
constexpr unsigned kThreads = 16;
constexpr Bytes kPinnedAtOnce = 1 * kGiB;

// By calls, not through a map: a file that is cut short meanwhile then fails and does not end the
// process.
void read_small(const UnitSource::FileRange& range, Bytes size, std::byte* to) {
  const int fd = ::open(range.file.c_str(), O_RDONLY | O_CLOEXEC);
  ssize_t count = -1;
  Bytes done = 0;
  while (fd >= 0 && done < size) {
    count = ::pread(fd, to + done, size - done, static_cast<off_t>(range.offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<Bytes>(count);
  }
  const int code = count < 0 ? errno : 0;
  if (fd >= 0) ::close(fd);
  if (done == size && fd >= 0) return;
  if (code != 0) {
    throw Error(code == ENOENT ? ErrorKind::kNotFound : ErrorKind::kResource,
                fmt::format("{}: cannot read: {}", range.file.string(), std::strerror(code)));
  }
  throw Error(ErrorKind::kCorrupt, fmt::format("{}: has {} bytes where {} should be at offset {}",
                                               range.file.string(), done, size, range.offset));
}

// The first of several failures, and the end of work that others do.
class Outcome {
 public:
  void begin() {
    const std::lock_guard lock(mutex_);
    ++open_;
  }
  void end(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (error && !error_) error_ = std::move(error);
    --open_;
    ended_.notify_all();
  }
  bool failed() {
    const std::lock_guard lock(mutex_);
    return error_ != nullptr;
  }
  void wait() {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return open_ == 0; });
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  int open_ = 0;
  std::exception_ptr error_;
};

class Builder {
 public:
  Builder(const PlacedModel& placed, const UnitSource& source, const DispatchOptions& options,
          HostSharing* sharing)
      : placed_(placed),
        planned_(placed.plan.devices),
        source_(source),
        options_(options),
        sharing_(sharing),
        store_(
            std::make_shared<WeightStore>(placed.plan.map, placed.main_device,
                                          options.max_memory ? *options.max_memory : MaxMemory{})),
        data_(placed.units.size(), nullptr),
        pinned_of_(placed.units.size(), nullptr) {}

  std::shared_ptr<WeightStore> run() {
    lay_out();
    drop_offered();  // before it is filled: what lies there already counts to the budget
    find_files();
    make_slots();
    fill();
    pinner_.finish();
    unshare();
    for (std::size_t i = 0; i < placed_.units.size(); ++i) change_tensors(i);
    if (any_marked_) forbid_moves();
    keep_files_cached();
    return store_;
  }

 private:
  struct Place {
    std::size_t unit;
    Bytes offset;
  };
  struct Area {
    Bytes size = 0;
    std::vector<Place> places;
    SharedPart shared;
  };
  // device, pinned, no other process's, number
  using AreaKey = std::tuple<std::string, bool, bool, int>;
  using Areas = std::map<AreaKey, Area>;
  static c10::Device area_device(const AreaKey& key) { return c10::Device(std::get<0>(key)); }
  static bool is_shared(const AreaKey& key) {
    return area_device(key).is_cpu() && !std::get<2>(key);
  }

  struct Pinned {
    Pinned(Slab* memory, int fed) : slab(memory), gpu(fed) {}
    Slab* slab;
    int gpu;
    std::atomic<std::size_t> to_fill = 0;  // units
  };

  const Unit& unit(std::size_t i) const { return placed_.units[i]; }
  bool leaves(std::size_t i) const {
    return source_.leaves(i) && (unit(i).resident() || unit(i).tensors.front().is_meta());
  }
  // Whether its bytes lie in memory, on a device or in RAM.
  bool in_memory(std::size_t i) const { return unit(i).lies.kind != DeviceKind::kDisk; }
  c10::Device memory_of(std::size_t i) const {
    return unit(i).resident() ? unit(i).runs_on : c10::Device(c10::kCPU);
  }
  bool fills(std::size_t i) const {
    return data_[i] != nullptr && (fills_host_ || !memory_of(i).is_cpu() || source_.is_own(i));
  }
  // Floats of another type become the model's on the GPU, which is faster at it, if there is RAM
  // for them on their way.
  std::optional<UnitSource::StoredFloats> cast_on_gpu(std::size_t i) const {
    if (memory_of(i).is_cpu() || c10::elementSize(unit(i).type) > sizeof(float)) return {};
    if (!has_room_to_stage_) return {};
    auto floats = source_.floats_of(i);
    if (floats && c10::elementSize(floats->type) > sizeof(float)) return {};
    return floats;
  }
  UnitSource::FileRange range_of(std::size_t i) const {
    const auto floats = cast_on_gpu(i);
    return floats ? floats->range : *source_.file_of(i);
  }
  bool read_directly(std::size_t i) const {
    return unit(i).size >= kDirectSize && (source_.file_of(i) || cast_on_gpu(i));
  }

  // All of a tier in one piece; but host memory that a GPU is fed from apart and in several,
  // because it is pinned, each piece once it is filled. Buffers that a model computes itself and
  // keeps are counted where they are.
  void lay_out() {
    Areas areas;
    int number = 0;
    for (std::size_t i = 0; i < placed_.units.size(); ++i) {
      if (!in_memory(i)) continue;
      if (leaves(i)) {
        const at::Tensor& tensor = unit(i).tensors.front();
        if (unit(i).is_buffer && tensor.is_cpu()) store_->add_kept(aligned_memory(unit(i).size));
        continue;
      }
      const bool pinned = !unit(i).resident();
      Area& area = areas[{memory_of(i).str(), pinned, source_.is_own(i), pinned ? number : 0}];
      const Bytes slack = memory_of(i).is_cpu() && read_directly(i) ? kReadSlack : 0;
      area.places.push_back({i, area.size + slack});
      area.size += aligned_memory(unit(i).size) + 2 * slack;
      if (pinned && area.size >= kPinnedAtOnce) ++number;
    }
    if (sharing_ != nullptr) share(&areas);
    for (const auto& [key, area] : areas) {
      Slab& slab = store_->add_slab(area_device(key), area.size, area.shared);
      if (area.shared.descriptor >= 0) shared_.emplace_back(&slab, area.shared);
      for (const Place& place : area.places) data_[place.unit] = slab.data() + place.offset;
      if (!std::get<1>(key)) continue;
      const c10::Device fed = unit(area.places.front().unit).runs_on;
      Pinned& pinned = pinned_.emplace_back(&slab, static_cast<int>(fed.index()));
      for (const Place& place : area.places) pinned_of_[place.unit] = &pinned;
    }
  }

  // One piece of memory for all areas of the host. Called even without any: others may have some.
  void share(Areas* areas) {
    Bytes size = 0;
    std::string layout = source_.files();
    for (auto& [key, area] : *areas) {
      if (!is_shared(key)) continue;
      area.shared.offset = size;
      size += (area.size + core::kHugePage - 1) / core::kHugePage * core::kHugePage;
      for (const Place& place : area.places) {
        layout += fmt::format("\n{} {} {} {}", unit(place.unit).name, unit(place.unit).size,
                              static_cast<int>(unit(place.unit).type), place.offset);
      }
    }
    const HostSharing::Memory memory = sharing_->open(size, std::hash<std::string>()(layout));
    fills_host_ = memory.fills;
    for (auto& [key, area] : *areas) {
      if (is_shared(key)) area.shared.descriptor = memory.descriptor;
    }
  }

  void unshare() {
    if (sharing_ == nullptr) return;
    sharing_->filled();
    for (const auto& [slab, part] : shared_) slab->unshare(part);
    sharing_->close();
  }

  void find_files() {
    std::vector<std::size_t> to_write;
    for (std::size_t i = 0; i < placed_.units.size(); ++i) {
      if (in_memory(i) || leaves(i)) continue;
      if (const auto file = source_.file_of(i)) {
        files_[i] = *file;
      } else {
        to_write.push_back(i);
      }
    }
    if (to_write.empty()) return;
    OffloadFile file = write_offload_file(options_.offload_folder, to_write, placed_, source_);
    store_->keep(std::move(file.owner));
    files_.merge(file.ranges);
  }

  // A module's own weights may all be used by one op: the slots that they take.
  Bytes largest_module(c10::Device device) const {
    const Bytes slack = device.is_cpu() ? kReadSlack : 0;
    std::map<std::string, Bytes> modules;
    Bytes largest = 0;
    for (const Unit& candidate : placed_.units) {
      if (candidate.resident() || candidate.looked_up() || candidate.runs_on != device) continue;
      Bytes& sum = modules[candidate.name.substr(0, candidate.name.rfind('.') + 1)];
      sum += Streamer::slot_size(candidate.size, slack);
      largest = std::max(largest, sum);
    }
    return largest;
  }

  Bytes slots_for(c10::Device device) {
    if (options_.slots) return *options_.slots;
    const Bytes module = largest_module(device);
    if (const Bytes planned = planned_for(device).slots) return std::max(planned, module);
    // One module in use while the next ones come, or one alone where there is no more room. What a
    // CPU has left beside a GPU is for what passes through RAM to it.
    const bool ahead = device.is_cpu() && !on_gpu_;
    const Bytes most = module + (ahead ? std::max(module, kReadAhead) : module);
    return std::clamp(store_->ledger(device).left().value_or(most), module, most);
  }

  void make_slots() {
    std::map<std::string, Bytes> streamed;  // slot bytes of all, by device
    std::vector<c10::Device> devices;
    std::vector<c10::Device> used;
    for (const Unit& candidate : placed_.units) {
      if (std::find(used.begin(), used.end(), candidate.runs_on) == used.end()) {
        used.push_back(candidate.runs_on);
      }
      if (candidate.resident()) continue;
      const Bytes slack = candidate.runs_on.is_cpu() ? kReadSlack : 0;
      streamed[candidate.runs_on.str()] +=
          candidate.looked_up() ? 0 : Streamer::slot_size(candidate.size, slack);
      if (std::find(devices.begin(), devices.end(), candidate.runs_on) == devices.end()) {
        devices.push_back(candidate.runs_on);
      }
    }
    if (used.size() > 1) store_->set_several_devices();
    on_gpu_ = std::any_of(used.begin(), used.end(), [](c10::Device d) { return !d.is_cpu(); });
    any_streamed_ = !devices.empty();
    const auto gpus = static_cast<std::size_t>(std::count_if(
        devices.begin(), devices.end(), [](c10::Device device) { return !device.is_cpu(); }));
    std::map<std::string, Bytes> slots;
    for (const c10::Device device : devices) {
      const Bytes all = streamed[device.str()];
      slots[device.str()] = placed_.whole ? all : std::min(slots_for(device), all);
      store_->add_streamer(device, slots[device.str()],
                           placed_.whole ? SlotMemory::kWhileUsed : SlotMemory::kKept, gpus);
    }
    for (const c10::Device device : devices) {  // a user's map leaves the slots to us
      PlanDevice& planned = planned_for(device);
      if (planned.slots == 0 || placed_.whole) planned.slots = slots[device.str()];
    }
    store_->set_plan(planned_);
  }

  PlanDevice& planned_for(c10::Device device) {
    const Device named = device.is_cpu() ? kCpuDevice : gpu(device.index());
    for (PlanDevice& planned : planned_) {
      if (planned.device == named) return planned;
    }
    planned_.emplace_back().device = named;
    return planned_.back();
  }

  // What goes to RAM first: the last of it is pinned while the rest comes.
  std::vector<std::size_t> units_to_fill() const {
    std::vector<std::size_t> units;
    for (const bool host : {true, false}) {
      for (std::size_t i = 0; i < placed_.units.size(); ++i) {
        if (fills(i) && memory_of(i).is_cpu() == host) units.push_back(i);
      }
    }
    return units;
  }

  void fill() {
    const std::vector<std::size_t> units = units_to_fill();
    std::set<c10::DeviceIndex> gpus;
    for (const std::size_t i : units) {
      if (!memory_of(i).is_cpu() && unit(i).size >= kDirectSize) gpus.insert(memory_of(i).index());
    }
    staging_gpus_ = gpus.size();
    const Bytes least_staging = staging_gpus_ * kLeastStaging;
    const auto left = store_->ledger(c10::Device(c10::kCPU)).left();
    has_room_to_stage_ = !left || *left >= least_staging;
    std::vector<std::size_t> read;
    std::vector<std::size_t> copied;
    Bytes total = 0;
    for (const std::size_t i : units) {
      (read_directly(i) ? read : copied).push_back(i);
      total += unit(i).size;
      if (pinned_of_[i] != nullptr) ++pinned_of_[i]->to_fill;
    }
    for (const Pinned& pinned : pinned_) {
      if (pinned.to_fill == 0) pinner_.add(pinned.slab, pinned.gpu, Pages::kFresh);
    }
    const bool stages = std::any_of(read.begin(), read.end(),
                                    [&](std::size_t i) { return !memory_of(i).is_cpu(); });
    const std::vector<std::unique_ptr<Sender>> senders =
        senders_for(copied, stages ? least_staging : 0);
    core::Progress progress("loading", total);
    Outcome outcome;
    for (const std::size_t i : read) {
      outcome.begin();
      try {
        start_read(i, &progress, &outcome);
      } catch (...) {  // reads under way still end here
        outcome.end(named(i, std::current_exception()));
      }
    }
    copy(copied, senders, &progress, &outcome);
    outcome.wait();
    progress.finish();
  }

  void start_read(std::size_t i, core::Progress* progress, Outcome* outcome) {
    const auto floats = cast_on_gpu(i);
    const UnitSource::FileRange range = range_of(i);
    Home home{nullptr, store_->disk().open(range.file), range.offset, unit(i).size};
    if (floats) {
      home.size = floats->size;
      home.cast = FloatCast{floats->type, unit(i).type};
    }
    const auto done = [this, i, progress, outcome](std::exception_ptr error) {
      try {
        if (!error) note_read(i, progress);
      } catch (...) {
        error = std::current_exception();
      }
      outcome->end(named(i, error));
    };
    if (memory_of(i).is_cpu()) {
      store_->disk().read({home.file, home.offset, home.size, data_[i], done});
      return;
    }
    lane(memory_of(i))
        .fill(home, data_[i], {},
              [done](const std::exception_ptr& error, const GpuPoint&) { done(error); });
  }

  void note_read(std::size_t i, core::Progress* progress) {
    progress->advance(unit(i).size);
    if (!source_.is_own(i)) store_->add_read(source_.read_for(i, unit(i).size));
    Pinned* const pinned = pinned_of_[i];
    if (pinned == nullptr || --pinned->to_fill > 0) return;
    pinner_.add(pinned->slab, pinned->gpu, Pages::kFilled);
  }

  std::exception_ptr named(std::size_t i, const std::exception_ptr& error) const {
    if (!error) return nullptr;
    try {
      std::rethrow_exception(error);
    } catch (Error& found) {
      Error copy = found;
      copy.add_context(fmt::format("weight '{}'", unit(i).name));
      return std::make_exception_ptr(copy);
    } catch (...) {
      return error;
    }
  }

  // What has to be made (casts, views, quantised blocks) or is small: a thread for each sender.
  void copy(const std::vector<std::size_t>& units,
            const std::vector<std::unique_ptr<Sender>>& senders, core::Progress* progress,
            Outcome* outcome) {
    std::atomic<std::size_t> next = 0;
    const auto work = [&](Sender* sender) {
      for (std::size_t k = next++; k < units.size() && !outcome->failed(); k = next++) {
        outcome->begin();
        try {
          copy_one(units[k], sender);
          note_read(units[k], progress);
          outcome->end(nullptr);
        } catch (...) {
          outcome->end(named(units[k], std::current_exception()));
        }
      }
    };
    if (senders.empty()) return;
    std::vector<std::jthread> threads;
    try {
      for (std::size_t i = 1; i < senders.size(); ++i) threads.emplace_back(work, senders[i].get());
    } catch (const std::exception&) {
      // As many as the system gives.
    }
    work(senders.front().get());
  }

  // One for each thread, null where nothing goes to GPUs. `others` of RAM is for what is read.
  std::vector<std::unique_ptr<Sender>> senders_for(const std::vector<std::size_t>& units,
                                                   Bytes others) {
    const std::size_t threads = std::min<std::size_t>(
        units.size(), std::clamp(std::thread::hardware_concurrency(), 1U, kThreads));
    std::optional<Bytes> largest;
    for (const std::size_t i : units) {
      if (!memory_of(i).is_cpu()) largest = std::max(largest.value_or(0), unit(i).size);
    }
    if (!largest) return std::vector<std::unique_ptr<Sender>>(threads);
    return make_senders(&store_->ledger(c10::Device(c10::kCPU)), *largest, others, threads);
  }

  void copy_one(std::size_t i, Sender* sender) {
    const bool host = memory_of(i).is_cpu();
    if (!host) sender->begin(lane(memory_of(i)), data_[i]);
    if (const auto range = source_.file_of(i)) {
      std::vector<std::byte> small(host ? 0 : unit(i).size);
      read_small(*range, unit(i).size, host ? data_[i] : small.data());
      if (!host) sender->send(small);
    } else {
      make(i, host ? nullptr : sender);
    }
    if (!host) sender->end();
  }

  // In its place, or through `sender`.
  void make(std::size_t i, Sender* sender) {
    Bytes at = 0;
    source_.stream(i, [&](std::span<const std::byte> piece) {
      if (piece.size() > unit(i).size - at) {
        throw Error(ErrorKind::kCorrupt,
                    fmt::format("more than the {} bytes that its shape needs", unit(i).size));
      }
      if (sender != nullptr) {
        sender->send(piece);
      } else {
        std::memcpy(data_[i] + at, piece.data(), piece.size());
      }
      at += piece.size();
    });
    if (at != unit(i).size) {
      throw Error(ErrorKind::kCorrupt,
                  fmt::format("{} bytes where its shape needs {}", at, unit(i).size));
    }
  }

  Lane& lane(c10::Device device) {
    const std::lock_guard lock(lanes_mutex_);
    std::unique_ptr<Lane>& lane = lanes_[device.index()];
    if (!lane) {
      lane = make_gpu_lane(device.index(), store_->shared_disk(),
                           store_->ledger(c10::Device(c10::kCPU)), kLoadStaging, staging_gpus_);
    }
    return *lane;
  }

  HelpedPart part_of(std::size_t i) const {
    const Unit& placed = unit(i);
    const at::Tensor& tensor = placed.tensors.front();
    const double share = placed_.plan.cpu_share;
    if (share <= 0 || placed_.whole || placed.as_stored || !in_memory(i) ||
        placed.runs_on.is_cpu() || tensor.dim() != 2) {
      return {};
    }
    const std::int64_t rows = rows_to_bring(tensor, placed.type, share);
    if (rows == tensor.size(0)) return {};
    return {placed.size / tensor.size(0) * rows,
            std::min(placed_.plan.helped_rows, kMostHelpedRows)};
  }

  void change_tensors(std::size_t i) {
    if (leaves(i)) return;
    const Unit& placed = unit(i);
    // Without a GPU inputs are where they belong: only what is away has to be noticed.
    const bool marked =
        !placed.resident() || store_->has_several_devices() || (on_gpu_ && any_streamed_);
    any_marked_ |= marked;
    c10::Storage storage;
    if (placed.resident()) {
      storage = store_->resident(placed.name, placed.runs_on, placed.size, data_[i]);
    } else {
      Home home{data_[i], 0, 0, placed.size};
      if (!in_memory(i))
        home = {nullptr, store_->disk().open(files_[i].file), files_[i].offset, placed.size};
      storage = store_->streamed(placed.name, placed.runs_on, placed.size, home, part_of(i),
                                 placed.looked_up());
    }
    for (const at::Tensor& tensor : placed.tensors) {
      const c10::DimVector strides = placed.as_stored ? c10::DimVector(tensor.strides())
                                                      : c10::contiguous_strides(tensor.sizes());
      const c10::InferenceMode same_kind(tensor.is_inference());
      const at::Tensor changed =
          tensor_on(storage, placed.as_stored ? tensor.scalar_type() : placed.type, tensor.sizes(),
                    strides, placed.as_stored ? tensor.storage_offset() : 0, marked);
      tensor.unsafeGetTensorImpl()->shallow_copy_from(changed.getIntrusivePtr());
    }
  }

  void forbid_moves() {
    store_->set_offloaded();
    for (std::size_t i = 0; i < placed_.units.size(); ++i) {
      const at::Tensor& tensor = unit(i).tensors.front();
      if (!leaves(i) || tensor.is_meta()) continue;  // which is still for the user to fill
      store_->add_left(unit(i).name, tensor.storage());
    }
    guard_moves();
  }

  // For the next process that loads the model. Disks that weights come from all the time have
  // enough to do.
  void keep_files_cached() {
    if (store_->disk().counts().bytes_direct == 0) return;
    std::set<std::filesystem::path> files;
    for (std::size_t i = 0; i < placed_.units.size(); ++i) {
      if (!in_memory(i)) return;
      if (fills(i) && read_directly(i)) files.insert(range_of(i).file);
    }
    try {
      store_->keep_cached({files.begin(), files.end()});
    } catch (const std::system_error&) {
      // No thread is to be had for it: the model is there all the same.
    }
  }

  const PlacedModel& placed_;
  std::vector<PlanDevice> planned_;
  const UnitSource& source_;
  const DispatchOptions& options_;
  HostSharing* sharing_;  // null: none
  bool fills_host_ = true;
  std::vector<std::pair<Slab*, SharedPart>> shared_;
  std::shared_ptr<WeightStore> store_;
  std::vector<std::byte*> data_;  // of each unit that lies in memory
  std::deque<Pinned> pinned_;
  std::vector<Pinned*> pinned_of_;  // of each unit, where there is one
  Pinner pinner_;                   // ends before the memory goes
  std::map<std::size_t, UnitSource::FileRange> files_;
  std::mutex lanes_mutex_;
  std::map<int, std::unique_ptr<Lane>> lanes_;  // their ends wait for their copies
  bool any_streamed_ = false;
  bool any_marked_ = false;
  bool on_gpu_ = false;
  bool has_room_to_stage_ = true;
  std::size_t staging_gpus_ = 0;  // that weights are read for
};

}  // namespace

std::shared_ptr<WeightStore> build(const PlacedModel& placed, const UnitSource& source,
                                   const DispatchOptions& options, HostSharing* sharing) {
  return Builder(placed, source, options, sharing).run();
}

}  // namespace haul::runtime
