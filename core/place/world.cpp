#include "core/place/world.h"

#include <algorithm>

namespace haul::core {

std::vector<Choice> allowed_choices(const World& world) {
  std::vector<Choice> result;
  const auto count = static_cast<std::uint8_t>(world.executors.size());
  for (std::uint8_t e = 0; e < count; ++e) {
    if (world.executors[e].holds_weights) result.push_back({e, Store::kHere});
  }
  for (std::uint8_t e = 0; e < count; ++e) {
    if (world.ram > 0 && world.executors[e].link > 0) result.push_back({e, Store::kRam});
  }
  for (std::uint8_t e = 0; e < count; ++e) {
    if (world.disk > 0) result.push_back({e, Store::kDisk});
  }
  return result;
}

double compute_seconds(const Unit& unit, const Executor& executor) {
  return std::max(static_cast<double>(unit.touched) / executor.bandwidth,
                  unit.operations / executor.speed);
}

double copy_seconds(const World& world, Size weights, Choice choice) {
  const double bytes = static_cast<double>(weights);
  const double link = world.executors[choice.executor].link;
  double seconds = 0;
  if (choice.store != Store::kHere && link > 0) seconds = bytes / link;
  if (choice.store == Store::kDisk) seconds = std::max(seconds, bytes / world.disk_bandwidth);
  return seconds;
}

double link_seconds(const Executor& executor, double copied, double on_cpu) {
  return copied > 0 ? copied / executor.link + on_cpu : 0;
}

namespace {

// What the choices put on one executor.
struct Load {
  bool busy = false;
  Size resident = 0;  // weights and KV cache
  Size from_ram = 0;
  Size from_disk = 0;
  Size piece = 0;  // the largest that is copied
};

// Two slots where they fit, else one; false when not even that fits.
bool give_slots(const World& world, const std::vector<Load>& loads, Timing* timing) {
  for (std::size_t e = 0; e < loads.size(); ++e) {
    const Executor& executor = world.executors[e];
    const bool is_cpu = executor.device == kCpuDevice;
    const Size piece = loads[e].piece;
    const Size used = timing->used[e] + (is_cpu ? timing->ram_used : 0);
    if (used > executor.capacity) return false;
    if (piece > 0) {
      const Size free = executor.capacity - used;
      timing->slots[e] = free >= 2 * piece ? 2 : 1;
      timing->slot_bytes[e] = timing->slots[e] * piece;
      if (timing->slot_bytes[e] > free) return false;
    }
    timing->used[e] += timing->slot_bytes[e];
    if (is_cpu) timing->ram_used += timing->used[e];
  }
  // A CPU that computes holds the same RAM, which was checked above.
  if (!world.computes_on_cpu() && timing->ram_used > world.ram) return false;
  return timing->disk_used <= world.disk;
}

}  // namespace

int hops_of(const World& world, const Choices& choices) {
  int hops = 0;
  for (std::size_t i = 1; i < world.order.size(); ++i) {
    if (choices[world.order[i]].executor != choices[world.order[i - 1]].executor) ++hops;
  }
  return hops;
}

Timing predict(const World& world, const Choices& choices) {
  const std::size_t count = world.executors.size();
  Timing timing;
  timing.link.resize(count);
  timing.slots.resize(count);
  timing.slot_bytes.resize(count);
  timing.used.resize(count);
  std::vector<Load> loads(count);
  // Of equal units in a row with equal choices only the first is looked at closely.
  double compute = 0;
  for (std::size_t u = 0; u < world.units.size(); ++u) {
    const Unit& unit = world.units[u];
    const Choice choice = choices[u];
    const bool again = u > 0 && choice.executor == choices[u - 1].executor &&
                       unit.touched == world.units[u - 1].touched &&
                       unit.operations == world.units[u - 1].operations;
    if (!again) compute = compute_seconds(unit, world.executors[choice.executor]);
    timing.chain += compute;
    if (world.executors[choice.executor].device == kCpuDevice) timing.on_cpu += compute;
    Load& load = loads[choice.executor];
    load.busy = true;
    load.resident += unit.extra;
    if (choice.store == Store::kHere) {
      load.resident += unit.weights;
    } else {
      (choice.store == Store::kRam ? load.from_ram : load.from_disk) += unit.weights;
      load.piece = std::max(load.piece, unit.piece);
    }
  }
  for (std::size_t e = 0; e < count; ++e) {
    const Load& load = loads[e];
    const Executor& executor = world.executors[e];
    timing.used[e] = load.resident + (load.busy ? executor.fixed : 0);
    timing.ram_used += load.from_ram;
    timing.disk_used += load.from_disk;
    const double copied = static_cast<double>(load.from_ram + load.from_disk);
    if (executor.link > 0) timing.link[e] = link_seconds(executor, copied, timing.on_cpu);
  }
  timing.disk = static_cast<double>(timing.disk_used) / world.disk_bandwidth;
  timing.hops = hops_of(world, choices);
  timing.chain += timing.hops * world.hop;
  timing.fits = give_slots(world, loads, &timing);
  if (!timing.fits) return timing;
  for (std::size_t e = 0; e < count; ++e) {
    if (timing.slots[e] != 1) continue;
    const auto index = static_cast<std::uint8_t>(e);
    timing.chain += copy_seconds(world, loads[e].from_ram, {index, Store::kRam}) +
                    copy_seconds(world, loads[e].from_disk, {index, Store::kDisk});
  }
  timing.seconds = std::max(timing.chain, timing.disk);
  for (const double link : timing.link) timing.seconds = std::max(timing.seconds, link);
  return timing;
}

}  // namespace haul::core
