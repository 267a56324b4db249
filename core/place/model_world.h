#pragma once

// From a description, budgets and a profile to the planner's world, and back from its choices to a
// device map.

#include <span>
#include <vector>

#include "core/place/node_map.h"
#include "core/place/world.h"
#include "haul/device_map.h"
#include "haul/profile.h"

namespace haul::core {

// Of which rows are looked up and nothing else is done, as torch's Embedding does.
bool is_table(const ModuleSpec& module);

// What a pass brings beside the weights.
struct Workload {
  std::int64_t tokens = 1;  // of one pass: the batch when a token is generated
  Bytes kv = 0;             // of all layers
  double attended = 0;      // numbers of heads that one pass looks at in all layers
  std::int64_t layers = 0;  // that have a KV cache: the last blocks
  Bytes fixed = 0;          // on every executor that is used: activations, logits, workspace
  Bytes gpu_context = 0;    // and beside it on every GPU, as the driver's
  Bytes recorded = 0;       // and there where all lies on one GPU
  Bytes tables = 0;         // elsewhere: with which GPUs find what lies in RAM for them
  bool apart = false;       // not all lies on one GPU
  bool margins = false;     // see PlanRequest
  // Bytes a second that the CPU can multiply, however fast they come, of matrices that lie in RAM
  // for GPUs. 0: it does not.
  double most_help = 0;
  // Keys and values lie in RAM, and each pass brings them to GPUs, which alone compute.
  bool kv_in_ram = false;

  // What each GPU then has of them: the layer at hand and the next.
  Bytes kv_slots() const;
  Bytes of_driver() const { return gpu_context + (apart ? tables : recorded); }
};

// By unit: the modules and tensors that it is made of, at least one.
class UnitKeys {
 public:
  using Index = ModuleSizes::Index;

  std::size_t size() const { return begin_.size() - 1; }
  std::size_t total() const { return keys_.size(); }
  std::span<const Index> operator[](std::size_t unit) const {
    return std::span(keys_).subspan(begin_[unit], begin_[unit + 1] - begin_[unit]);
  }
  void reserve(std::size_t units) {
    keys_.reserve(units);
    begin_.reserve(units + 1);
  }
  void start_unit() { begin_.push_back(begin_.back()); }
  // To the last unit.
  void add(Index key) {
    keys_.push_back(key);
    ++begin_.back();
  }

 private:
  std::vector<Index> keys_;
  std::vector<std::uint32_t> begin_{0};  // by unit, and where the last one ends
};

struct ModelWorld {
  World world;
  UnitKeys keys;
};

// `sizes` is the description's table for the options' dtypes.
ModelWorld build_world(const Description& description, const ModuleSizes& sizes,
                       const MapOptions& options, const MaxMemory& memory, const Profile& profile,
                       const Workload& workload);

// What a tensor of the table is made of in memory: a bool is a byte, whatever it counts.
Bytes stored_bytes(const ModuleSizes::Node& tensor);

// Where a unit's weights lie.
inline Device device_of(const World& world, Choice choice) {
  if (choice.store == Store::kRam) return kCpuDevice;
  if (choice.store == Store::kDisk) return kDiskDevice;
  return world.executors[choice.executor].device;
}
// `places` as those of named().
DeviceMap to_device_map(const ModelWorld& model, const ModuleSizes& sizes, const Choices& choices,
                        bool clean, NamePlaces* places);

// What a given map means in this world. Weights in RAM are copied to the first GPU or computed by
// the CPU, whichever is faster for all of them; those on disk are copied to the first executor.
// Nothing when the map uses devices that the world lacks or leaves a unit out or in two places.
std::optional<Choices> from_device_map(const ModelWorld& model, const ModuleSizes& sizes,
                                       const DeviceMap& map);
std::optional<Choices> from_node_map(const ModelWorld& model, const ModuleSizes& sizes,
                                     const NodeMap& map);

}  // namespace haul::core
