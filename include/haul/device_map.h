#pragma once

// Which device holds which module: the budgets, the map, and the functions on both that users of
// Accelerate know by name. Pure, any thread. A device in a map is logical: an accelerator's number,
// "mps", "cpu" or "disk"; nothing here asks whether it exists.

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "haul/bytes.h"
#include "haul/description.h"
#include "haul/module_sizes.h"

namespace haul {

enum class DeviceKind : std::uint8_t { kGpu, kMps, kCpu, kDisk };

// Ordered as memory is filled: accelerators by number, then mps, cpu, disk.
struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;  // of a kGpu; else 0

  auto operator<=>(const Device&) const = default;
  bool is_accelerator() const { return kind <= DeviceKind::kMps; }
};

inline constexpr Device kCpuDevice{DeviceKind::kCpu, 0};
inline constexpr Device kDiskDevice{DeviceKind::kDisk, 0};
inline constexpr Device gpu(int index) {
  return {DeviceKind::kGpu, index};
}

// "0", "mps", "cpu", "disk"; also reads "cuda:0" and "cuda". Throws Error(kUsage) on any other.
Device parse_device(std::string_view text);
std::string to_string(Device device);

// A budget in whole bits, because balancing by the peer's rules can leave a fraction of a byte.
struct Budget {
  Device device;
  Bits bits = 0;

  Bytes bytes() const { return bits / 8; }
  bool operator==(const Budget&) const = default;
};
// Sorted by device, each once. A device that is not listed is not used, except that disk is there
// without a limit when nothing is said about it.
using MaxMemory = std::vector<Budget>;

// The largest budget: whole bits must fit in 63.
inline constexpr Bytes kMaxBudget = (Bytes{1} << 60) - 1;

Budget budget(Device device, Bytes bytes);
std::optional<Bits> budget_of(const MaxMemory& memory, Device device);
// Sorted as above. Throws Error(kUsage) for a device given twice or a budget over kMaxBudget.
MaxMemory get_max_memory(std::vector<Budget> budgets);
// '0=10GiB,cpu=30GiB' or a JSON object. Throws Error(kUsage) that names the entry.
MaxMemory parse_max_memory(std::string_view text);

// A name covers everything at and below it; "" covers the whole model.
using DeviceMap = std::vector<std::pair<std::string, Device>>;

// Sorted by name.
DeviceMap sorted(DeviceMap map);
// Puts modules whose entries all lie on one device into one entry. The result is sorted.
DeviceMap clean_device_map(const DeviceMap& map);
// The device of a name: that of its longest prefix in the map.
std::optional<Device> device_of(const DeviceMap& map, std::string_view name);

// A map's JSON object: names to 0, "cpu", "disk". Throws Error(kCorrupt) naming source and entry.
DeviceMap read_device_map(std::string_view json, std::string_view source);

struct DeviceMapCheck {
  std::vector<std::string> unknown_keys;  // entries that name no module
  std::vector<std::string> uncovered;     // weights and saved buffers without a device
  // Tied groups that lie on more than one device, or nowhere.
  std::vector<std::vector<std::string>> split_ties;

  bool covers_everything() const { return uncovered.empty(); }
};
DeviceMapCheck check_device_map(const Description& description, const DeviceMap& map);

// Groups of two or more names that share a tensor; each group sorted, the groups in the order in
// which the model registers their first tensor.
std::vector<std::vector<std::string>> find_tied_parameters(const Description& description);

enum class MapMode : std::uint8_t { kAuto, kBalanced, kBalancedLow0, kSequential };
// "auto", "balanced", "balanced_low_0", "sequential"; throws Error(kUsage) that lists the four.
MapMode parse_map_mode(std::string_view text);
std::string_view to_string(MapMode mode);

struct MapOptions {
  SizeOptions sizes;                  // dtype and special dtypes
  std::vector<std::string> no_split;  // class names
  bool clean_result = true;
  bool offload_buffers = false;
  bool fallback_allocation = false;
};

struct InferredMap {
  DeviceMap map;
  std::vector<std::string> warnings;
  std::vector<Budget> reserves;  // room that was kept free on a device for offloaded layers
  // Devices that got nothing, and the least they would have needed.
  std::vector<Budget> minimum_needed;
  // Where Accelerate itself would have failed and this map is ours: its exception's name, or
  // "rejected" for a map that its own check refuses. Empty otherwise.
  std::string peer_failure;
};

// Accelerate's planner, defects included. Where it would crash, or lose a saved buffer, the result
// is a valid map and says so.
InferredMap infer_auto_device_map(const Description& description, const MaxMemory& memory,
                                  const MapOptions& options);
struct BalanceOptions {
  bool low_zero = false;
  // The budgets are what the machine has free, not what the user asked for: a single accelerator
  // then keeps a tenth back.
  bool from_machine = false;
};
// Accelerate's budgets for "auto", "balanced" and "balanced_low_0".
struct BalancedMemory {
  MaxMemory memory;
  std::string peer_failure;  // as above
};
BalancedMemory get_balanced_memory(const Description& description, const MaxMemory& memory,
                                   const MapOptions& options, const BalanceOptions& balance);

}  // namespace haul
