#include "core/place/world.h"

#include <algorithm>
#include <numeric>

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

double copy_seconds(const World& world, const Unit& unit, Choice choice) {
  const double bytes = static_cast<double>(unit.weights);
  const double link = world.executors[choice.executor].link;
  double seconds = 0;
  if (choice.store != Store::kHere && link > 0) seconds = bytes / link;
  if (choice.store == Store::kDisk) seconds = std::max(seconds, bytes / world.disk_bandwidth);
  return seconds;
}

namespace {

// Two slots where they fit, else one; false when not even that fits.
bool give_slots(const World& world, const std::vector<Size>& piece, Timing* timing) {
  for (std::size_t e = 0; e < world.executors.size(); ++e) {
    const Executor& executor = world.executors[e];
    const bool is_cpu = executor.device == kCpuDevice;
    const Size used = timing->used[e] + (is_cpu ? timing->ram_used : 0);
    if (used > executor.capacity) return false;
    if (piece[e] > 0) {
      const Size free = executor.capacity - used;
      timing->slots[e] = free >= 2 * piece[e] ? 2 : 1;
      timing->slot_bytes[e] = timing->slots[e] * piece[e];
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

Timing predict(const World& world, const Choices& choices) {
  const std::size_t count = world.executors.size();
  Timing timing;
  timing.link.resize(count);
  timing.slots.resize(count);
  timing.slot_bytes.resize(count);
  timing.used.resize(count);
  std::vector<Size> piece(count);
  std::vector<double> copies(count);
  std::vector<bool> busy(count);
  for (std::size_t u = 0; u < world.units.size(); ++u) {
    const Unit& unit = world.units[u];
    const Choice choice = choices[u];
    const Executor& executor = world.executors[choice.executor];
    busy[choice.executor] = true;
    timing.chain += compute_seconds(unit, executor);
    timing.used[choice.executor] += unit.extra;
    if (choice.store == Store::kHere) {
      timing.used[choice.executor] += unit.weights;
      continue;
    }
    (choice.store == Store::kRam ? timing.ram_used : timing.disk_used) += unit.weights;
    piece[choice.executor] = std::max(piece[choice.executor], unit.piece);
    const double bytes = static_cast<double>(unit.weights);
    if (executor.link > 0) timing.link[choice.executor] += bytes / executor.link;
    if (choice.store == Store::kDisk) timing.disk += bytes / world.disk_bandwidth;
    copies[choice.executor] += copy_seconds(world, unit, choice);
  }
  for (std::size_t e = 0; e < count; ++e) {
    if (busy[e]) timing.used[e] += world.executors[e].fixed;
  }
  for (std::size_t i = 1; i < world.order.size(); ++i) {
    if (choices[world.order[i]].executor != choices[world.order[i - 1]].executor) ++timing.hops;
  }
  timing.chain += timing.hops * world.hop;
  timing.fits = give_slots(world, piece, &timing);
  if (!timing.fits) return timing;
  for (std::size_t e = 0; e < count; ++e) {
    if (timing.slots[e] == 1) timing.chain += copies[e];
  }
  timing.seconds = std::max(timing.chain, timing.disk);
  for (const double link : timing.link) timing.seconds = std::max(timing.seconds, link);
  return timing;
}

double lower_bound(const World& world) {
  Size gpu_room = 0;
  double links = 0;
  double fastest = 0;
  double speed = 0;
  for (const Executor& executor : world.executors) {
    fastest = std::max(fastest, executor.bandwidth);
    speed = std::max(speed, executor.speed);
    if (executor.link == 0) continue;
    gpu_room = std::min(kNoLimit, gpu_room + std::max<Size>(0, executor.capacity - executor.fixed));
    links += executor.link;
  }
  double everything = 0;
  Size total = 0;
  for (const Unit& unit : world.units) {
    everything += std::max(static_cast<double>(unit.touched) / fastest, unit.operations / speed);
    total += unit.weights;
  }
  double bound = everything;
  const Size held = gpu_room + std::min(kNoLimit, world.ram);
  const bool cpu = world.computes_on_cpu();
  // What no memory holds is read from disk.
  if (total > held)
    bound = std::max(bound, static_cast<double>(total - held) / world.disk_bandwidth);
  // What no GPU holds goes over a link or is computed on the CPU, the least touched units first.
  if (world.has_gpu() && total > gpu_room) {
    std::vector<std::uint32_t> by_density(world.units.size());
    std::iota(by_density.begin(), by_density.end(), 0U);
    const auto density = [&](std::uint32_t u) {
      const Unit& unit = world.units[u];
      return static_cast<double>(unit.touched) /
             static_cast<double>(std::max<Size>(1, unit.weights));
    };
    std::sort(by_density.begin(), by_density.end(),
              [&](std::uint32_t a, std::uint32_t b) { return density(a) < density(b); });
    double rest = static_cast<double>(total - gpu_room);
    double touched = 0;
    for (const std::uint32_t u : by_density) {
      if (rest <= 0) break;
      const double part = std::min(rest, static_cast<double>(world.units[u].weights));
      touched += part * std::min(1.0, density(u));
      rest -= part;
    }
    const double rate = links + (cpu ? world.executors.back().bandwidth : 0);
    bound = std::max(bound, touched / rate);
  }
  return bound;
}

}  // namespace haul::core
