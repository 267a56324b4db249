#include "core/place/model_world.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "core/place/device_lookup.h"
#include "haul/tensor_memory.h"

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
      : sizes_(sizes), options_(options), workload_(workload), largest_device_(largest_device) {
    units.reserve(sizes.nodes().size() / 2);
    keys.reserve(sizes.nodes().size() / 2);
  }

  // What is not whole is left for the nodes below it, which come next.
  void walk() {
    const Index end = sizes_[ModuleSizes::kRoot].end;
    for (Index i = ModuleSizes::kRoot; i < end;) {
      const ModuleSizes::Node& node = sizes_[i];
      const bool block = node.divisible && i != ModuleSizes::kRoot &&
                         contains(options_.no_split, node.module->class_name);
      const Size bytes = to_size(whole_bytes(node.bits));
      if (node.divisible && !(block && bytes <= largest_device_)) {
        ++i;
      } else {
        add(i, bytes, block);
        i = node.end;
      }
    }
  }

  // A model without any tensor is one unit.
  void finish() {
    if (!empty_.empty()) {
      keys.start_unit();
      for (const Index node : empty_) keys.add(node);
      units.emplace_back();
    }
    share_kv();
  }

  std::vector<Unit> units;
  UnitKeys keys;

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
    for (const std::size_t u : holders) {
      if (!workload_.kv_in_ram) units[u].extra += each;
      units[u].touched += each;
      units[u].attended = workload_.attended / static_cast<double>(holders.size());
    }
  }

  void add(Index node, Size bytes, bool is_block) {
    Unit& unit = units.emplace_back();
    double elements = 0;
    // A module without tensors goes with its neighbour.
    if (!add_tensors(node, &unit, &elements)) {
      units.pop_back();
      if (keys.size() == 0) {
        empty_.push_back(node);
      } else {
        keys.add(node);
      }
      return;
    }
    keys.start_unit();
    keys.add(node);
    for (const Index module : empty_) keys.add(module);
    empty_.clear();
    unit.touched = bytes - std::min(bytes, unit.buffers);
    unit.weights = unit.touched + unit.margin;
    unit.extra = unit.buffers + unit.buffer_margin;
    const ModuleSpec* module = sizes_[node].module;
    if (module != nullptr && is_lookup(*module)) {
      const double row =
          static_cast<double>(bytes) / static_cast<double>(module->parameters[0].shape[0]);
      const auto of_bytes = [&](double each) {
        const double rows = each * static_cast<double>(workload_.tokens);
        return rows < static_cast<double>(bytes) ? static_cast<Size>(rows) : bytes;
      };
      unit.touched = std::min(unit.touched, of_bytes(row));
      // Disks are read by whole sectors.
      const Size rows = std::max<Size>(1, of_bytes(row + static_cast<double>(kReadSlack)));
      if (is_table(*module)) unit.rows = rows;
    } else {
      unit.operations = 2.0 * elements * static_cast<double>(workload_.tokens);
    }
    if (is_block) blocks_.push_back(units.size() - 1);
  }

  // The pieces, slots, margins, buffers and calls of the tensors below a node, and how many
  // elements their parameters have; false when there is no tensor. A module's tensors follow it.
  bool add_tensors(Index node, Unit* unit, double* elements) const {
    bool any = false;
    bool called = false;  // the module that is at hand
    bool by_input = false;
    Bits own = 0;
    Size own_slots = 0;
    const ModuleSizes::Node* const begin = &sizes_[node];
    for (const ModuleSizes::Node& item : std::span(begin, begin->end - node)) {
      if (item.module != nullptr) {
        own = 0;
        own_slots = 0;
        called = false;
        by_input = item.module->class_name == "Conv1D";
        continue;
      }
      any = true;
      if (workload_.margins) {
        add_with_margins(item, unit, &own_slots);
        unit->piece = std::max(unit->piece, own_slots);
      } else {
        own += item.bits;
        unit->piece = std::max(unit->piece, to_size(whole_bytes(own)));
        unit->slots += to_size(whole_bytes(item.bits));
      }
      if (item.kind == ModuleSizes::Kind::kParameter) {
        *elements += static_cast<double>(item.elements);
        if (std::exchange(called, true)) continue;
        ++unit->calls;
        if (by_input) ++unit->by_input;
      }
    }
    return any;
  }

  void add_with_margins(const ModuleSizes::Node& item, Unit* unit, Size* own_slots) const {
    if (item.bits == 0 && item.elements > 0) return;  // counted elsewhere
    const Bytes counted = whole_bytes(item.bits);
    const Bytes bytes = stored_bytes(item);
    if (item.kind == ModuleSizes::Kind::kBuffer && !options_.offload_buffers) {
      unit->buffers += to_size(counted);
      unit->buffer_margin += to_size(resident_memory(bytes)) - to_size(counted);
      return;
    }
    unit->margin += to_size(resident_memory(bytes)) - to_size(counted);
    *own_slots += to_size(slot_memory(bytes));
    unit->slots += to_size(slot_memory(bytes));
  }

  const ModuleSizes& sizes_;
  const MapOptions& options_;
  const Workload& workload_;
  const Size largest_device_;
  std::vector<std::size_t> blocks_;
  std::vector<Index> empty_;  // modules without tensors before the first unit
};

// By unit: the first of those that it shares a tensor with, or itself.
std::vector<std::uint32_t> groups_by_ties(const Description& description, const ModuleSizes& sizes,
                                          const Builder& builder) {
  std::vector<std::uint32_t> leader(builder.units.size());
  std::iota(leader.begin(), leader.end(), 0U);
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

// Units that share a tensor become one. The elements of a shared table are all read where it is the
// output head.
void merge(const Builder& builder, const std::vector<std::uint32_t>& leader, ModelWorld* result) {
  std::vector<std::uint32_t> number(leader.size());
  std::vector<std::vector<std::uint32_t>> members;
  for (std::uint32_t u = 0; u < leader.size(); ++u) {
    if (leader[u] == u) {
      number[u] = static_cast<std::uint32_t>(members.size());
      members.emplace_back();
    }
    members[number[leader[u]]].push_back(u);
    result->world.order.push_back(number[leader[u]]);
  }
  for (const auto& units : members) {
    Unit whole;
    result->keys.start_unit();
    for (const std::uint32_t u : units) {
      const Unit& unit = builder.units[u];
      whole.add_memory(unit);
      whole.touched += units.size() > 1 ? unit.weights : unit.touched;
      whole.piece = std::max(whole.piece, unit.piece);
      whole.operations += unit.operations;
      whole.calls += unit.calls;
      whole.by_input += unit.by_input;
      whole.attended += unit.attended;
      if (units.size() == 1) whole.rows = unit.rows;
      for (const Index key : builder.keys[u]) result->keys.add(key);
    }
    result->world.units.push_back(whole);
  }
}

// How much of the weights that a step reads whole is in linear layers, with which the CPU can help.
double linear_share(const ModuleSizes& sizes) {
  Bits linear = 0;
  Bits all = 0;
  for (const ModuleSizes::Node& node : sizes.nodes()) {
    if (node.module == nullptr || node.divisible || is_lookup(*node.module)) {
      continue;
    }
    all += node.bits;
    if (node.module->class_name == "Linear") linear += node.bits;
  }
  return all > 0 ? static_cast<double>(linear) / static_cast<double>(all) : 0;
}

// While a link brings some rows of a matrix, the CPU multiplies the others: both end together.
void let_cpu_help(const Profile& profile, double linear, double most, World* world) {
  if (world->ram == 0) return;
  const auto beside = [&](const Executor& executor) {
    return profile.help_link > 0 ? std::min(executor.alone, profile.help_link) : executor.alone;
  };
  double links = 0;
  for (const Executor& executor : world->executors) links += beside(executor);
  double help = profile.help_bandwidth;
  // Until that is measured: the CPU and the links together get more out of RAM than the CPU alone.
  if (!profile.measured) help = std::max(help, profile.ram_bandwidth - links / 2);
  help = std::min(help, most);
  if (links <= 0 || help <= 0) return;
  world->cpu_share = help / (help + links);
  const double helped = linear * world->cpu_share;
  for (Executor& executor : world->executors) {
    const double link = beside(executor) / (1 - helped);
    if (link <= executor.alone) continue;
    executor.helped = helped;
    executor.help_call = profile.help_call;
    executor.link = link;
  }
}

void add_executors(const MaxMemory& memory, const Profile& profile, const Workload& workload,
                   World* world) {
  for (const Budget& item : memory) {
    if (!item.device.is_accelerator() || item.bytes() == 0) continue;
    const GpuProfile& gpu = profile.of_gpu(item.device.index);
    Executor& executor = world->executors.emplace_back();
    executor.device = item.device;
    executor.capacity = to_size(item.bytes());
    executor.fixed = to_size(workload.fixed) + to_size(workload.of_driver());
    executor.bandwidth = gpu.memory_bandwidth;
    executor.speed = gpu.operations;
    executor.link = executor.alone = gpu.link_bandwidth;
    executor.call = gpu.call;
    executor.by_input = gpu.by_input;
    executor.attended = gpu.attended;
    if (!workload.kv_in_ram) continue;
    executor.fixed += to_size(workload.kv_slots());
    executor.brought = static_cast<double>(workload.kv) / gpu.link_bandwidth;
  }
  const auto ram = budget_of(memory, kCpuDevice);
  world->ram = ram ? to_size(*ram / 8) : 0;
  if (workload.kv_in_ram) {
    world->ram = std::max<Size>(0, world->ram - to_size(workload.kv));
  } else if (world->ram > 0 || world->executors.empty()) {
    world->executors.push_back({kCpuDevice, ram ? world->ram : kNoLimit, ram.has_value(),
                                to_size(workload.fixed), profile.ram_bandwidth,
                                profile.cpu_operations, 0, profile.cpu_call, profile.cpu_by_input});
  }
  const auto disk = budget_of(memory, kDiskDevice);
  world->disk = disk ? to_size(*disk / 8) : kNoLimit;
  world->disk_bandwidth = profile.disk_bandwidth;
  world->hop = profile.hop;
}

}  // namespace

bool is_table(const ModuleSpec& module) {
  return is_lookup(module) && module.class_name == "Embedding" && module.buffers.empty();
}

Bytes Workload::kv_slots() const {
  const auto of = static_cast<Bytes>(std::max<std::int64_t>(1, layers));
  return kv_in_ram ? std::min<Bytes>(2, of) * ((kv + of - 1) / of) : 0;
}

ModelWorld build_world(const Description& description, const ModuleSizes& sizes,
                       const MapOptions& options, const MaxMemory& memory, const Profile& profile,
                       const Workload& workload) {
  ModelWorld result;
  add_executors(memory, profile, workload, &result.world);
  if (workload.most_help > 0) {
    let_cpu_help(profile, linear_share(sizes), workload.most_help, &result.world);
  }
  Size largest_device = std::max(result.world.ram, result.world.disk);
  for (const Executor& executor : result.world.executors) {
    if (executor.holds_weights) largest_device = std::max(largest_device, executor.capacity);
  }
  Builder builder(sizes, options, workload, largest_device);
  builder.walk();
  builder.finish();
  if (description.tied.empty()) {
    result.world.order.resize(builder.units.size());
    std::iota(result.world.order.begin(), result.world.order.end(), 0U);
    result.world.units = std::move(builder.units);
    result.keys = std::move(builder.keys);
  } else {
    merge(builder, groups_by_ties(description, sizes, builder), &result);
  }
  return result;
}

Bytes stored_bytes(const ModuleSizes::Node& tensor) {
  return tensor.dtype == Dtype::kBool ? tensor.elements : whole_bytes(tensor.bits);
}

DeviceMap to_device_map(const ModelWorld& model, const ModuleSizes& sizes, const Choices& choices,
                        bool clean, NamePlaces* places) {
  NodeMap map(model.keys.total());
  std::size_t next = 0;
  for (std::size_t u = 0; u < choices.size(); ++u) {
    const Device device = device_of(model.world, choices[u]);
    for (const Index key : model.keys[u]) map[next++] = {key, device};
  }
  const auto by_node = [](const NodeEntry& a, const NodeEntry& b) { return a.node < b.node; };
  if (!std::is_sorted(map.begin(), map.end(), by_node)) std::sort(map.begin(), map.end(), by_node);
  return named(sizes, map, clean, places);
}

namespace {

// `device_of_key` tells where a module or tensor lies.
template <typename DeviceOfKey>
std::optional<Choices> choices_of(const ModelWorld& model, const ModuleSizes& sizes,
                                  DeviceOfKey device_of_key) {
  const World& world = model.world;
  if (world.executors.empty()) return std::nullopt;
  Choices streamed(world.units.size());
  Choices computed(world.units.size());
  const auto cpu = static_cast<std::uint8_t>(world.executors.size() - 1);
  const bool has_cpu = world.computes_on_cpu();
  for (std::size_t u = 0; u < world.units.size(); ++u) {
    std::optional<Device> device;
    for (const Index key : model.keys[u]) {
      if (sizes[key].bits == 0 && model.keys[u].size() > 1 && device) continue;
      const std::optional<Device> found = device_of_key(key);
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

}  // namespace

std::optional<Choices> from_device_map(const ModelWorld& model, const ModuleSizes& sizes,
                                       const DeviceMap& map) {
  const DeviceLookup lookup(map);
  Names names(sizes);
  return choices_of(model, sizes, [&](Index key) { return lookup(names(key)); });
}

std::optional<Choices> from_node_map(const ModelWorld& model, const ModuleSizes& sizes,
                                     const NodeMap& map) {
  return choices_of(model, sizes, [&](Index key) { return device_at(sizes, map, key); });
}

}  // namespace haul::core
