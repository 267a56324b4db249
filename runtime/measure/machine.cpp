#include "runtime/measure/machine.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include "core/base/file.h"
#include "haul/error.h"
#include "kernels/attend.h"
#include "runtime/measure/measured_models.h"
#include "runtime/tiers/disk_reader.h"
#include "runtime/tiers/gpu.h"
#include "runtime/tiers/read_end.h"
#include "runtime/tiers/slab.h"

namespace haul::runtime {
namespace {

namespace fs = std::filesystem;

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 5;
constexpr Bytes kPiece = 64 * kMiB;
constexpr Bytes kHost = 1 * kGiB;      // beyond every cache
constexpr std::int64_t kWidth = 4096;  // of what passes between large layers

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The middle of some rounds, after one that does not count.
template <typename Work>
double median_seconds(Work work) {
  work();
  std::vector<double> times;
  for (int i = 0; i < kRounds; ++i) {
    const auto begin = Clock::now();
    work();
    times.push_back(seconds_since(begin));
  }
  std::sort(times.begin(), times.end());
  return times[kRounds / 2];
}

std::unique_ptr<Slab> host_memory(Ledger& ledger, Bytes size, bool pinned) {
  auto slab = std::make_unique<Slab>(c10::Device(c10::kCPU), size,
                                     ledger.reserve(Tag::kStaging, size), pinned);
  std::memset(slab->data(), 0, size);  // else all pages are one
  return slab;
}

double operations(c10::Device device, c10::ScalarType type, std::int64_t size) {
  const auto options = at::TensorOptions().device(device).dtype(type);
  const at::Tensor a = at::ones({size, size}, options);
  const double seconds = median_seconds([&] {
    const at::Tensor product = at::mm(a, a);
    if (device.is_cuda()) wait_for(point_of_current_stream(device.index()));
  });
  return 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size) /
         seconds;
}

// What memory gives at once; summed by word, so that no sum waits for another.
using Line = std::array<std::uint64_t, 8>;

Line sum(std::span<const Line> lines) {
  constexpr std::size_t kAhead = 32;
  Line result{};
  for (const Line& line : lines) {
    __builtin_prefetch(&line + kAhead);
    for (std::size_t i = 0; i < line.size(); ++i) result[i] += line[i];
  }
  return result;
}

// Of a number of a head that a token looks at, beside its bytes: as a long context shows it.
double attended_seconds(c10::Device gpu, double bandwidth) {
  constexpr std::int64_t kHeads = 32, kKvHeads = 8, kSize = 128,
                         kTokens = 32768;  // more than caches hold
  constexpr int kCalls = 16;
  const auto options = at::TensorOptions().device(gpu).dtype(at::kBFloat16);
  const auto seconds = [&](std::int64_t tokens) {
    const at::Tensor queries = at::ones({1, kHeads, 1, kSize}, options);
    const at::Tensor keys = at::ones({1, kKvHeads, tokens, kSize}, options);
    const at::Tensor values = at::ones({1, kKvHeads, tokens, kSize}, options);
    return median_seconds([&] {
             for (int i = 0; i < kCalls; ++i) kernels::attend(queries, keys, values, {}, 1);
             wait_for(point_of_current_stream(gpu.index()));
           }) /
           kCalls;
  };
  const double numbers = static_cast<double>(3 * kTokens * kHeads * kSize);
  const double bytes = static_cast<double>(2 * 2 * 3 * kTokens * kKvHeads * kSize);
  const double more = seconds(4 * kTokens) - seconds(kTokens) - bytes / bandwidth;
  return std::max(0.0, more / numbers);
}

// Seconds from a GPU to the CPU and back, for what passes between layers; half of it is one hop.
double hop_seconds(c10::Device gpu) {
  const at::Tensor x = at::ones({1, kWidth}, at::TensorOptions().device(gpu));
  return median_seconds([&] {
           const at::Tensor back = x.to(c10::kCPU).to(gpu);
           wait_for(point_of_current_stream(gpu.index()));
         }) /
         2;
}

// What a process that runs a model takes of GPU 0 beside what its plan has there.
Bytes beside_plan(const fs::path& model, Bytes gpu, const MeasureOptions& options) {
  const Bytes before = free_of_gpu(0);
  Bytes least = before;
  Bytes planned = 0;
  {
    const std::jthread watch([&](const std::stop_token& ended) {
      for (; !ended.stop_requested(); std::this_thread::sleep_for(std::chrono::milliseconds(2))) {
        try {
          least = std::min(least, free_of_gpu(0));
        } catch (const Error&) {
          return;  // who computes there is told as well
        }
      }
    });
    planned = options.run_apart(model, gpu);
  }
  return before - std::min(before, least + planned);
}

// All on the GPU, where passes are recorded, and with some of it in RAM.
void measure_context(const fs::path& model, const MeasureOptions& options, GpuProfile* gpu) {
  constexpr Bytes kAll = 8 * kGiB;
  constexpr Bytes kSome = 1280 * kMiB;
  // Else others have taken or left memory meanwhile.
  constexpr Bytes kLeast = 100 * kMiB;
  constexpr Bytes kMost = 4 * kGiB;
  const Bytes context = beside_plan(model, kSome, options);
  const Bytes recorded = beside_plan(model, kAll, options);
  if (context < kLeast || recorded < context || recorded > kMost) return;
  // Pools of small tensors grow by 2 MiB, others by 12: other models may just need a piece more.
  constexpr Bytes kPieces = 14 * kMiB;
  gpu->context = context + kPieces;
  gpu->recorded = recorded - context;
}

void write_file(const fs::path& path, const Slab& bytes) {
  core::write_file_atomically(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

double disk_bandwidth_in(const fs::path& folder, Ledger& ledger) {
  struct Removed {
    fs::path path;
    ~Removed() {
      std::error_code ignored;
      fs::remove(path, ignored);
    }
  } const file{folder / fmt::format("haul-measure-{}", ::getpid())};
  write_file(file.path, *host_memory(ledger, kHost, false));
  return disk_bandwidth(file.path);
}

}  // namespace

double read_bandwidth(c10::Device device) {
  const c10::InferenceMode no_gradients;
  if (device.is_cuda()) {
    const at::Tensor words =
        at::ones({static_cast<std::int64_t>(kHost / sizeof(float))}, at::TensorOptions(device));
    return static_cast<double>(kHost) / median_seconds([&] {
             words.sum();
             wait_for(point_of_current_stream(device.index()));
           });
  }
  Ledger ledger("measure", std::nullopt);
  const std::unique_ptr<Slab> memory = host_memory(ledger, kHost, false);
  const std::span lines(reinterpret_cast<const Line*>(memory->data()), kHost / sizeof(Line));
  const std::size_t threads = std::max(1U, std::thread::hardware_concurrency());
  std::vector<Line> sums(threads);
  const double seconds = median_seconds([&] {
    std::vector<std::jthread> running;
    for (std::size_t t = 0; t < threads; ++t) {
      running.emplace_back([&, t] {
        const std::size_t begin = lines.size() * t / threads;
        sums[t] = sum(lines.subspan(begin, lines.size() * (t + 1) / threads - begin));
      });
    }
  });
  return static_cast<double>(kHost) / seconds;
}

double link_bandwidth(int gpu, Bytes piece) {
  constexpr Bytes kPieces = 8;
  Ledger ledger("measure", std::nullopt);
  const std::unique_ptr<Slab> host = host_memory(ledger, piece * kPieces, true);
  const Slab device(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(gpu)), piece * 2,
                    ledger.reserve(Tag::kSlots, piece * 2));
  CopyStream copies(gpu);
  const double seconds = median_seconds([&] {
    for (Bytes i = 0; i < kPieces; ++i) {
      copies.copy(device.data() + piece * (i % 2), host->data() + piece * i, piece);
    }
    wait_for(copies.point());
  });
  return static_cast<double>(piece * kPieces) / seconds;
}

// All reads at once: a disk is slower where it waits for the next.
double disk_bandwidth(const fs::path& file) {
  constexpr Bytes kMost = 4 * kGiB;
  constexpr Bytes kPlaces = 32;  // in memory, one after the other; nobody looks at what comes
  const Bytes size = fs::file_size(file);
  const Bytes piece = std::min<Bytes>(size, 16 * kMiB);
  if (piece == 0) return 0;
  const Bytes whole = size / piece;
  const Bytes count = std::min(3 * whole, kMost / piece);
  const Bytes place = piece + 2 * kReadSlack;
  Ledger ledger("measure", std::nullopt);
  const std::unique_ptr<Slab> memory = host_memory(ledger, kPlaces * place, false);
  DiskReader reader;  // ends before the memory goes
  const int opened = reader.open(file);
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  ::close(fd);
  std::vector<ReadEnd> ends(count);
  const auto begin = Clock::now();
  for (Bytes i = 0; i < count; ++i) {
    std::byte* const to = memory->data() + i % kPlaces * place + kReadSlack;
    reader.read({opened, i % whole * piece, piece, to, ends[i].done()});
  }
  for (ReadEnd& end : ends) end.wait();
  return static_cast<double>(count * piece) / seconds_since(begin);
}

Profile measure_machine(const MeasureOptions& options) {
  const c10::InferenceMode no_gradients;
  Profile profile;
  profile.measured = true;
  Ledger ledger("measure", std::nullopt);
  const std::vector<Gpu> found_gpus = gpus();
  options.on_step("models to run");
  const MeasuredModels models(options.folder, !found_gpus.empty());
  options.on_step("RAM");
  const ModelSpeed cpu = models.resident(kCpuDevice);
  profile.ram_bandwidth = cpu.bandwidth;
  profile.cpu_call = cpu.call;
  profile.cpu_by_input = cpu.by_input;
  options.on_step("CPU");
  profile.cpu_operations = operations(c10::kCPU, at::kFloat, 1024);
  GpuProfile gpu;
  if (!found_gpus.empty() && options.run_apart) {
    options.on_step("memory of the GPU's driver");
    measure_context(models.large(), options, &gpu);
  }
  for (const Gpu& found : found_gpus) {
    options.on_step(fmt::format("GPU {}", found.index));
    const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(found.index));
    const ModelSpeed speed = models.resident(haul::gpu(found.index));
    gpu.memory_bandwidth = speed.bandwidth;
    gpu.call = speed.call;
    gpu.by_input = speed.by_input;
    gpu.attended = attended_seconds(device, speed.bandwidth);
    gpu.operations = operations(device, at::kBFloat16, 8192);
    gpu.link_bandwidth = link_bandwidth(found.index, kPiece);
    profile.gpus[found.index] = gpu;
    if (found.index > 0) continue;
    profile.gpu = gpu;
    profile.hop = hop_seconds(device);
    options.on_step("the CPU beside the GPU");
    const HelpSpeed help = models.helped(gpu.link_bandwidth).value_or(HelpSpeed{});
    profile.help_bandwidth = help.bandwidth;
    profile.help_link = help.link;
    profile.help_call = help.call;
  }
  options.on_step("disk");
  profile.disk_bandwidth = disk_bandwidth_in(options.folder, ledger);
  return profile;
}

}  // namespace haul::runtime
