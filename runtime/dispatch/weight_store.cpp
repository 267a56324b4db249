#include "runtime/dispatch/weight_store.h"

#include <algorithm>
#include <iterator>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "core/place/words.h"
#include "haul/error.h"
#include "runtime/dispatch/model_tensors.h"
#include "runtime/dispatch/split_linear.h"

namespace haul::runtime {
namespace {

constexpr Bytes kStaging = 256 * kMiB;

// All weights of all dispatched models, by their storage.
struct Registry {
  std::shared_mutex mutex;
  std::unordered_map<const c10::StorageImpl*, std::unique_ptr<Weight>> weights;
  // What stayed as it was in models that are offloaded in part.
  struct Left {
    const WeightStore* store;
    std::string name;
  };
  std::unordered_multimap<const c10::StorageImpl*, Left> left;
};

Registry& registry() {
  static auto* const kept = new Registry;  // models may outlive every static
  return *kept;
}

// Called when the storage dies. The last weight takes the store with it.
void forget(void* context) {
  auto* const weight = static_cast<Weight*>(context);
  std::unique_ptr<Weight> last;
  {
    const std::unique_lock lock(registry().mutex);
    const auto found = registry().weights.find(weight->storage);
    last = std::move(found->second);
    registry().weights.erase(found);
  }
  if (last->streamer == nullptr) return;
  last->streamer->drop(last->number);
  if (last->part >= 0) last->streamer->drop(last->part);
}

// Puts a pointer into the storage without touching who owns it.
void set_data(Weight& weight, std::byte* data) {
  c10::DataPtr old =
      weight.storage->set_data_ptr(c10::DataPtr(data, &weight, &forget, weight.device));
  old.release_context();
}

}  // namespace

// What was in its place already may still belong to an earlier one: what is away tells the present.
WeightStore* store_of(const ModelTensors& model) {
  WeightStore* store = nullptr;
  for (const ModelTensor& item : model.all) {
    const Weight* const weight = find_weight(item.tensor);
    if (weight == nullptr) continue;
    if (weight->streamer != nullptr) return weight->store.get();
    if (store == nullptr) store = weight->store.get();
  }
  return store;
}

DiskReader::Options& disk_options() {
  static DiskReader::Options options;
  return options;
}

std::string tier_name(c10::Device device) {
  return device.is_cpu() ? "RAM" : fmt::format("GPU {}", static_cast<int>(device.index()));
}

Weight* find_weight(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return nullptr;
  const std::shared_lock lock(registry().mutex);
  const auto found = registry().weights.find(tensor.storage().unsafeGetStorageImpl());
  return found == registry().weights.end() ? nullptr : found->second.get();
}

std::optional<std::string> name_in_offloaded_model(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return std::nullopt;
  if (const Weight* const weight = find_weight(tensor)) {
    if (weight->store->is_offloaded()) return weight->name;
  }
  const std::shared_lock lock(registry().mutex);
  const auto found = registry().left.find(tensor.storage().unsafeGetStorageImpl());
  if (found == registry().left.end()) return std::nullopt;
  return found->second.name;
}

WeightStore::WeightStore(DeviceMap map, c10::Device main_device, const MaxMemory& budgets)
    : map_(std::move(map)), main_device_(main_device), budgets_(budgets) {}

SplitRoom& WeightStore::split_room(c10::Device device) {
  const std::lock_guard lock(split_mutex_);
  std::unique_ptr<SplitRoom>& room = split_rooms_[device.index()];
  if (!room) room = std::make_unique<SplitRoom>(device.index(), ledger(c10::kCPU));
  return *room;
}

WeightStore::~WeightStore() {
  forget_left();
}

void WeightStore::add_left(std::string name, const c10::Storage& storage) {
  left_.push_back(storage.getWeakStorageImpl());
  const std::unique_lock lock(registry().mutex);
  registry().left.emplace(storage.unsafeGetStorageImpl(), Registry::Left{this, std::move(name)});
}

void WeightStore::forget_left() {
  {
    const std::unique_lock lock(registry().mutex);
    for (const auto& storage : left_) {
      const auto [begin, end] = registry().left.equal_range(storage._unsafe_get_target());
      for (auto entry = begin; entry != end;) {
        entry = entry->second.store == this ? registry().left.erase(entry) : std::next(entry);
      }
    }
  }
  left_.clear();
}

Ledger& WeightStore::ledger(c10::Device device) {
  const std::string tier = tier_name(device);
  const auto found = ledgers_.find(tier);
  if (found != ledgers_.end()) return found->second;
  const auto bits = budget_of(budgets_, device.is_cpu() ? kCpuDevice : gpu(device.index()));
  const std::optional<Bytes> budget = bits ? std::optional(*bits / 8) : std::nullopt;
  return ledgers_.emplace(tier, Ledger(tier, budget)).first->second;
}

Bytes WeightStore::planned(const std::string& tier) const {
  const auto found = std::find_if(plan_.begin(), plan_.end(), [&](const PlanDevice& item) {
    return core::device_words(item.device) == tier;
  });
  return found == plan_.end() ? 0 : found->used() - found->context;
}

Slab& WeightStore::add_slab(c10::Device device, Bytes size, const SharedPart& shared) {
  Reservation reservation = ledger(device).reserve(Tag::kWeights, size);
  return *slabs_.emplace_back(
      std::make_unique<Slab>(device, size, std::move(reservation), false, shared));
}

void WeightStore::add_kept(Bytes size) {
  counted_.push_back(ledger(c10::Device(c10::kCPU)).reserve(Tag::kWeights, size));
}

Streamer& WeightStore::add_streamer(c10::Device device, Bytes slots, SlotMemory memory,
                                    std::size_t gpus) {
  std::unique_ptr<Lane> lane =
      device.is_cpu()
          ? make_cpu_lane(disk_)
          : make_gpu_lane(device.index(), disk_, ledger(c10::Device(c10::kCPU)), kStaging, gpus);
  return *streamers_
              .emplace(device,
                       std::make_unique<Streamer>(std::move(lane), ledger(device), slots, memory))
              .first->second;
}

Streamer* WeightStore::streamer(c10::Device device) {
  const auto found = streamers_.find(device);
  return found == streamers_.end() ? nullptr : found->second.get();
}

DeviceMap WeightStore::map() const {
  if (!is_here()) return map_;
  return {{"", main_device_.is_cpu() ? kCpuDevice : gpu(main_device_.index())}};
}

bool WeightStore::is_here() const {
  const Streamer* const streams = streamers_.empty() ? nullptr : streamers_.begin()->second.get();
  return streams != nullptr && streams->slot_memory() == SlotMemory::kWhileUsed &&
         streams->has_slots();
}

void WeightStore::offload() {
  for (const auto& [device, streamer] : streamers_) streamer->leave();
}

void WeightStore::offload_previous() {
  if (const std::shared_ptr<WeightStore> previous = previous_.lock()) previous->offload();
}

c10::Storage WeightStore::storage(std::unique_ptr<Weight> weight, Bytes size, std::byte* data) {
  Weight* const kept = weight.get();
  auto impl = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<std::int64_t>(size),
      c10::DataPtr(data, kept, &forget, kept->device), nullptr, false);
  kept->storage = impl.get();
  kept->store = shared_from_this();
  {
    const std::unique_lock lock(registry().mutex);
    registry().weights.emplace(impl.get(), std::move(weight));
  }
  return c10::Storage(std::move(impl));
}

c10::Storage WeightStore::resident(std::string name, c10::Device device, Bytes size,
                                   std::byte* data) {
  auto weight = std::make_unique<Weight>(std::move(name), device);
  return storage(std::move(weight), size, data);
}

c10::Storage WeightStore::streamed(std::string name, c10::Device device, Bytes size,
                                   const Home& home, const HelpedPart& part, bool looked_up) {
  Streamer* const streams = streamer(device);
  auto weight = std::make_unique<Weight>(name, device);
  weight->streamer = streams;
  weight->host = home.host;
  weight->number = streams->add(std::move(name), home, !looked_up);
  weight->looked_up = looked_up;
  if (part.size > 0) {
    weight->part_size = part.size;
    weight->part = streams->add_part(weight->number, part.size);
    weight->helped_rows = part.rows;
  }
  return storage(std::move(weight), size, nullptr);
}

void OpLeases::take(std::vector<Weight*> weights) {
  std::sort(weights.begin(), weights.end(), [](const Weight* a, const Weight* b) {
    return std::pair(a->streamer, a->number) < std::pair(b->streamer, b->number);
  });
  for (const Weight* const weight : weights) weight->store->offload_previous();
  std::vector<int> numbers;
  std::vector<std::byte*> data;
  for (std::size_t begin = 0; begin < weights.size();) {
    Streamer* const streamer = weights[begin]->streamer;
    std::size_t end = begin;
    numbers.clear();
    while (end < weights.size() && weights[end]->streamer == streamer) {
      numbers.push_back(weights[end++]->number);
    }
    streamer->lease(numbers, data);
    for (std::size_t i = begin; i < end; ++i) {
      weights_.push_back(weights[i]);
      const std::lock_guard lock(weights[i]->mutex);
      if (weights[i]->leases++ == 0) set_data(*weights[i], data[i - begin]);
    }
    begin = end;
  }
}

OpLeases::~OpLeases() {
  std::vector<int> numbers;
  for (std::size_t begin = 0; begin < weights_.size();) {
    Streamer* const streamer = weights_[begin]->streamer;
    numbers.clear();
    std::size_t end = begin;
    for (; end < weights_.size() && weights_[end]->streamer == streamer; ++end) {
      Weight& weight = *weights_[end];
      numbers.push_back(weight.number);
      const std::lock_guard lock(weight.mutex);
      if (--weight.leases == 0) set_data(weight, nullptr);
    }
    streamer->release(numbers);
    begin = end;
  }
}

void keep_changes(Weight& weight) {
  const std::lock_guard lock(weight.mutex);
  weight.helped_rows = 0;  // a part that came before is not what was written
  const Bytes size = weight.storage->nbytes();
  const bool has_home = weight.host != nullptr;
  if (!has_home) {
    const c10::Device host(c10::kCPU);
    weight.changed =
        std::make_unique<Slab>(host, size, weight.store->ledger(host).reserve(Tag::kChanged, size),
                               !weight.device.is_cpu());
    weight.host = weight.changed->data();
  }
  const auto* const data = static_cast<const std::byte*>(weight.storage->data());
  weight.streamer->lane().read_back(weight.host, data, size);
  if (!has_home) weight.streamer->move_home(weight.number, {weight.host, 0, 0, size});
}

}  // namespace haul::runtime
