#include "core/place/plan_devices.h"

#include <algorithm>
#include <map>

#include "core/place/device_lookup.h"
#include "core/place/node_map.h"
#include "core/place/workload.h"
#include "haul/tensor_memory.h"

namespace haul::core {
namespace {

// A GPU before the CPU.
Device first_device(const DeviceMap& map) {
  std::optional<Device> first;
  for (const auto& [name, device] : map) {
    if (device.is_accelerator() && (!first || device < *first)) first = device;
  }
  return first.value_or(kCpuDevice);
}

// Passes are recorded where one GPU has all the weights, and keys and values.
void set_drivers(const Workload& load, std::vector<PlanDevice>* devices) {
  const auto holds = [](const PlanDevice& device) { return device.weights + device.kv > 0; };
  const auto first = std::find_if(devices->begin(), devices->end(), holds);
  if (first != devices->end() && first->device.is_accelerator() &&
      std::none_of(first + 1, devices->end(), holds)) {
    return;
  }
  Bytes in_ram = 0;
  for (const PlanDevice& device : *devices) {
    if (device.device == kCpuDevice) in_ram += device.weights + device.margins;
  }
  for (PlanDevice& device : *devices) {
    if (device.context > 0) device.context = apart(load, in_ram).of_driver();
  }
}

// What a CPU that is alone reads from disk gets what is left, beside what is used as much as is
// worth reading at once. Beside a GPU what is left is for what passes through RAM to it.
void add_reads_ahead(Bytes piece, PlanDevice* device) {
  const Bytes used = device->used();
  const Bytes left =
      device->budget ? *device->budget - std::min(*device->budget, used) : kReadAhead;
  device->slots = std::max(device->slots, std::min(device->slots + left, piece + kReadAhead));
}

}  // namespace

std::vector<PlanDevice> devices_of(const World& world, const std::vector<Held>& held,
                                   const Timing& timing, const MaxMemory& memory,
                                   const Workload& load) {
  std::vector<PlanDevice> devices;
  const auto at = [&](Device device) -> PlanDevice& {
    for (PlanDevice& item : devices) {
      if (item.device == device) return item;
    }
    devices.push_back({});
    devices.back().device = device;
    return devices.back();
  };
  for (const Budget& item : memory) at(item.device).budget = item.bytes();
  bool alone = true;
  for (std::size_t e = 0; e < held.size(); ++e) {
    if (held[e].busy && world.executors[e].device.is_accelerator()) alone = false;
  }
  for (std::size_t e = 0; e < held.size(); ++e) {
    if (!held[e].busy) continue;
    Unit all;
    for (const Store store : {Store::kHere, Store::kRam, Store::kDisk}) {
      const Unit& unit = held[e][store];
      all.add_memory(unit);
      const auto weights = static_cast<Bytes>(unit.weights - unit.margin);
      if (weights == 0) continue;
      PlanDevice& holder = at(device_of(world, {static_cast<std::uint8_t>(e), store}));
      holder.weights += weights;
      if (store != Store::kDisk) holder.margins += static_cast<Bytes>(unit.margin);
    }
    PlanDevice& device = at(world.executors[e].device);
    device.weights += static_cast<Bytes>(all.buffers);
    device.margins += static_cast<Bytes>(all.buffer_margin);
    device.kv = static_cast<Bytes>(all.extra - all.buffers - all.buffer_margin) + load.kv_slots();
    device.activations = load.fixed;
    device.context = device.device.is_accelerator() ? load.of_driver() : 0;
    device.slots = static_cast<Bytes>(timing.slot_bytes[e]);
    if (alone && device.device == kCpuDevice && timing.slots[e] > 0) {
      add_reads_ahead(device.slots / static_cast<Bytes>(timing.slots[e]), &device);
    }
    // Two slots may be more than all that ever comes.
    const Size copied = held[e][Store::kRam].slots + held[e][Store::kDisk].slots;
    if (load.margins) device.slots = std::min(device.slots, static_cast<Bytes>(copied));
  }
  if (load.kv_in_ram) at(kCpuDevice).kv = load.kv;
  std::sort(devices.begin(), devices.end(),
            [](const PlanDevice& a, const PlanDevice& b) { return a.device < b.device; });
  return devices;
}

std::vector<PlanDevice> devices_of_map(const ModuleSizes& sizes, const MapOptions& options,
                                       const Plan& plan, const std::vector<Budget>& reserves,
                                       const Workload& load) {
  std::map<Device, PlanDevice> devices;
  std::map<Device, Bits> bits;
  for (const Budget& item : plan.memory) devices[item.device].budget = item.bytes();
  for (const auto& [name, device] : plan.map) devices[device];
  const Device first = first_device(plan.map);
  const DeviceLookup lookup(plan.map);
  Names names(sizes);
  for (ModuleSizes::Index i = 0; i < sizes.nodes().size(); ++i) {
    const ModuleSizes::Node& tensor = sizes[i];
    if (tensor.module != nullptr || tensor.bits == 0) continue;
    auto device = lookup(names(i));
    if (!device) continue;
    if (load.margins) {
      const bool buffer = tensor.kind == ModuleSizes::Kind::kBuffer && !options.offload_buffers;
      if (buffer && !device->is_accelerator()) device = first;
      if (*device != kDiskDevice) {
        devices[*device].margins +=
            resident_memory(stored_bytes(tensor)) - whole_bytes(tensor.bits);
      }
    }
    bits[*device] += tensor.bits;
  }
  for (const auto& [device, sum] : bits) devices[device].weights = whole_bytes(sum);
  for (const Budget& item : reserves) devices[item.device].slots = whole_bytes(item.bits);
  if (load.margins) {
    devices[first].kv = load.kv;
    devices[first].activations = load.fixed;
    devices[first].context = first.is_accelerator() ? load.of_driver() : 0;
  }
  std::vector<PlanDevice> result;
  for (auto& [device, item] : devices) {
    item.device = device;
    result.push_back(item);
  }
  set_drivers(load, &result);
  return result;
}

}  // namespace haul::core
