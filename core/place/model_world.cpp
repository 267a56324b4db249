#include "core/place/model_world.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "core/place/device_lookup.h"
#include "core/place/node_map.h"

namespace haul::core {
namespace {

using Index = ModuleSizes::Index;

constexpr Size kLargest = Size{1} << 56;

Size to_size(Bytes bytes) {
  return static_cast<Size>(std::min<Bytes>(bytes, kLargest));
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// A table of which a token reads one row.
bool is_lookup(const ModuleSpec& module) {
  return module.class_name.ends_with("Embedding") && module.children.empty() &&
         module.parameters.size() == 1 && module.parameters[0].shape.size() == 2 &&
         module.parameters[0].shape[0] > 0;
}

class Builder {
 public:
  Builder(const ModuleSizes& sizes, const MapOptions& options, const Workload& workload,
          Size largest_device)
      : sizes_(sizes), options_(options), workload_(workload), largest_device_(largest_device) {}

  void walk(Index node) {
    const ModuleSpec* module = sizes_[node].module;
    const bool whole =
        module == nullptr || module->children.empty() ||
        (node != ModuleSizes::kRoot && contains(options_.no_split, module->class_name));
    const Size bytes = to_size(whole_bytes(sizes_[node].bits));
    const bool too_large =
        bytes > largest_device_ && module != nullptr && !module->children.empty();
    if (whole && !too_large) {
      add(node, bytes, module != nullptr && !module->children.empty());
      return;
    }
    for (Index i = ModuleSizes::first_child(node); i != sizes_[node].end; i = sizes_.next(i)) {
      walk(i);
    }
  }

  // A model without any tensor is one unit.
  void finish() {
    if (!empty_.empty()) {
      keys.push_back(std::move(empty_));
      units.emplace_back();
    }
    share_kv();
  }

  std::vector<Unit> units;
  std::vector<std::vector<Index>> keys;

 private:
  void share_kv() {
    if (workload_.kv == 0) return;
    std::vector<std::size_t> holders = blocks_;
    const auto layers = static_cast<std::size_t>(std::max<std::int64_t>(0, workload_.layers));
    if (holders.size() > layers && layers > 0) {
      holders.erase(holders.begin(), holders.end() - static_cast<std::ptrdiff_t>(layers));
    }
    if (holders.empty()) {
      holders.resize(units.size());
      std::iota(holders.begin(), holders.end(), std::size_t{0});
    }
    const Size each = (to_size(workload_.kv) + static_cast<Size>(holders.size()) - 1) /
                      static_cast<Size>(holders.size());
    for (const std::size_t u : holders) units[u].extra += each;
  }

  void add(Index node, Size bytes, bool is_block) {
    // A module without tensors goes with its neighbour.
    if (!has_tensors(node)) {
      (keys.empty() ? empty_ : keys.back()).push_back(node);
      return;
    }
    keys.push_back({node});
    keys.back().insert(keys.back().end(), empty_.begin(), empty_.end());
    empty_.clear();
    Unit unit;
    unit.weights = unit.touched = bytes;
    unit.piece = largest_piece(node);
    const ModuleSpec* module = sizes_[node].module;
    if (module != nullptr && is_lookup(*module)) {
      const double row =
          static_cast<double>(bytes) / static_cast<double>(module->parameters[0].shape[0]);
      const double rows = row * static_cast<double>(workload_.tokens);
      if (rows < static_cast<double>(bytes)) unit.touched = static_cast<Size>(rows);
    } else {
      unit.operations = 2.0 * elements(node) * static_cast<double>(workload_.tokens);
    }
    units.push_back(unit);
    if (is_block) blocks_.push_back(units.size() - 1);
  }

  bool has_tensors(Index node) const {
    for (Index i = node; i < sizes_[node].end; ++i) {
      if (sizes_[i].module == nullptr) return true;
    }
    return false;
  }

  Size largest_piece(Index node) const {
    if (sizes_[node].module == nullptr) return to_size(whole_bytes(sizes_[node].bits));
    Size largest = 0;
    for (Index i = node; i < sizes_[node].end; ++i) {
      if (sizes_[i].module == nullptr) continue;
      Bits own = 0;
      for (Index t = ModuleSizes::first_child(i); t < sizes_[i].end && !sizes_[t].module; ++t) {
        own += sizes_[t].bits;
      }
      largest = std::max(largest, to_size(whole_bytes(own)));
    }
    return largest;
  }

  double elements(Index node) const {
    double sum = 0;
    for (Index i = node; i < sizes_[node].end; ++i) {
      if (sizes_[i].kind == ModuleSizes::Kind::kParameter) {
        sum += static_cast<double>(element_count(*sizes_[i].shape));
      }
    }
    return sum;
  }

  const ModuleSizes& sizes_;
  const MapOptions& options_;
  const Workload& workload_;
  const Size largest_device_;
  std::vector<std::size_t> blocks_;
  std::vector<Index> empty_;  // modules without tensors before the first unit
};

// Units that share a tensor become one.
std::vector<std::uint32_t> groups_by_ties(const Description& description, const ModuleSizes& sizes,
                                          const Builder& builder) {
  std::vector<std::uint32_t> leader(builder.units.size());
  std::iota(leader.begin(), leader.end(), 0U);
  if (description.tied.empty()) return leader;
  std::unordered_map<Index, std::uint32_t> unit_of;
  for (std::uint32_t u = 0; u < builder.keys.size(); ++u) {
    for (const Index key : builder.keys[u]) unit_of.emplace(key, u);
  }
  const auto root = [&](std::uint32_t u) {
    while (leader[u] != u) u = leader[u] = leader[leader[u]];
    return u;
  };
  for (const auto& group : find_tied_parameters(description)) {
    std::optional<std::uint32_t> first;
    for (const std::string& name : group) {
      std::optional<Index> node = sizes.find(name);
      while (node && *node != ModuleSizes::kRoot && !unit_of.contains(*node)) {
        node = sizes[*node].parent;
      }
      if (!node || *node == ModuleSizes::kRoot) continue;
      const std::uint32_t unit = root(unit_of.at(*node));
      if (!first) first = unit;
      leader[std::max(*first, unit)] = std::min(*first, unit);
      first = std::min(*first, unit);
    }
  }
  for (std::uint32_t u = 0; u < leader.size(); ++u) leader[u] = root(u);
  return leader;
}

// The elements of a shared table are all read where it is the output head.
void merge(Builder* builder, const std::vector<std::uint32_t>& leader, ModelWorld* result) {
  std::vector<std::uint32_t> number(leader.size());
  std::vector<std::uint32_t> members(leader.size());
  for (const std::uint32_t l : leader) ++members[l];
  for (std::uint32_t u = 0; u < leader.size(); ++u) {
    Unit unit = builder->units[u];
    if (members[leader[u]] > 1) unit.touched = unit.weights;
    if (leader[u] == u) {
      number[u] = static_cast<std::uint32_t>(result->world.units.size());
      result->world.units.push_back(unit);
      result->keys.push_back(std::move(builder->keys[u]));
    } else {
      number[u] = number[leader[u]];
      Unit& whole = result->world.units[number[u]];
      whole.weights += unit.weights;
      whole.touched += unit.touched;
      whole.piece = std::max(whole.piece, unit.piece);
      whole.extra += unit.extra;
      whole.operations += unit.operations;
      auto& keys = result->keys[number[u]];
      keys.insert(keys.end(), builder->keys[u].begin(), builder->keys[u].end());
    }
    result->world.order.push_back(number[u]);
  }
}

void add_executors(const MaxMemory& memory, const Profile& profile, const Workload& workload,
                   World* world) {
  for (const Budget& item : memory) {
    if (!item.device.is_accelerator() || item.bytes() == 0) continue;
    const GpuProfile& gpu = profile.of_gpu(item.device.index);
    world->executors.push_back({item.device, to_size(item.bytes()), true,
                                to_size(workload.fixed) + to_size(workload.gpu_context),
                                gpu.memory_bandwidth, gpu.operations, gpu.link_bandwidth});
  }
  const auto ram = budget_of(memory, kCpuDevice);
  world->ram = ram ? to_size(*ram / 8) : 0;
  if (world->ram > 0 || world->executors.empty()) {
    world->executors.push_back({kCpuDevice, ram ? world->ram : kNoLimit, ram.has_value(),
                                to_size(workload.fixed), profile.ram_bandwidth,
                                profile.cpu_operations, 0});
  }
  const auto disk = budget_of(memory, kDiskDevice);
  world->disk = disk ? to_size(*disk / 8) : kNoLimit;
  world->disk_bandwidth = profile.disk_bandwidth;
  world->hop = profile.hop;
}

}  // namespace

ModelWorld build_world(const Description& description, const ModuleSizes& sizes,
                       const MapOptions& options, const MaxMemory& memory, const Profile& profile,
                       const Workload& workload) {
  ModelWorld result;
  add_executors(memory, profile, workload, &result.world);
  Size largest_device = std::max(result.world.ram, result.world.disk);
  for (const Executor& executor : result.world.executors) {
    if (executor.holds_weights) largest_device = std::max(largest_device, executor.capacity);
  }
  Builder builder(sizes, options, workload, largest_device);
  builder.walk(ModuleSizes::kRoot);
  builder.finish();
  const std::vector<std::uint32_t> leader = groups_by_ties(description, sizes, builder);
  merge(&builder, leader, &result);
  return result;
}

Device device_of(const World& world, Choice choice) {
  if (choice.store == Store::kRam) return kCpuDevice;
  if (choice.store == Store::kDisk) return kDiskDevice;
  return world.executors[choice.executor].device;
}

DeviceMap to_device_map(const ModelWorld& model, const ModuleSizes& sizes, const Choices& choices,
                        bool clean) {
  NodeMap map(sizes.nodes().size());
  for (std::size_t u = 0; u < choices.size(); ++u) {
    const Device device = device_of(model.world, choices[u]);
    for (const Index key : model.keys[u]) map[key] = device;
  }
  return named(sizes, clean ? cleaned(sizes, map) : map);
}

std::optional<Choices> from_device_map(const ModelWorld& model, const ModuleSizes& sizes,
                                       const DeviceMap& map) {
  const World& world = model.world;
  if (world.executors.empty()) return std::nullopt;
  const DeviceLookup lookup(map);
  Choices streamed(world.units.size());
  Choices computed(world.units.size());
  const auto cpu = static_cast<std::uint8_t>(world.executors.size() - 1);
  const bool has_cpu = world.computes_on_cpu();
  for (std::size_t u = 0; u < world.units.size(); ++u) {
    std::optional<Device> device;
    for (const Index key : model.keys[u]) {
      if (sizes[key].bits == 0 && model.keys[u].size() > 1 && device) continue;
      const auto found = lookup(sizes.name(key));
      if (!found || (device && device != found)) return std::nullopt;
      device = found;
    }
    Choice choice{0, Store::kDisk};
    if (device == kCpuDevice) {
      if (!has_cpu || !world.executors[cpu].holds_weights) return std::nullopt;
      streamed[u] = world.has_gpu() ? Choice{0, Store::kRam} : Choice{cpu, Store::kHere};
      computed[u] = {cpu, Store::kHere};
      continue;
    }
    if (device != kDiskDevice) {
      const auto found = std::find_if(world.executors.begin(), world.executors.end(),
                                      [&](const Executor& e) { return e.device == device; });
      if (found == world.executors.end()) return std::nullopt;
      choice = {static_cast<std::uint8_t>(found - world.executors.begin()), Store::kHere};
    }
    streamed[u] = computed[u] = choice;
  }
  return predict(world, streamed).seconds <= predict(world, computed).seconds ? streamed : computed;
}

}  // namespace haul::core
