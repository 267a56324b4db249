#include "core/place/world.h"

#include <algorithm>
#include <map>
#include <tuple>

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

bool looks_up_tables(const World& world) {
  return world.computes_on_cpu() && world.disk > 0 &&
         std::any_of(world.units.begin(), world.units.end(),
                     [](const Unit& unit) { return unit.rows > 0; });
}

UnitKinds kinds_of(const World& world) {
  const auto weigh = [](const Unit& unit) {
    return std::tuple(unit.weights, unit.touched, unit.piece, unit.extra, unit.operations,
                      unit.calls, unit.by_input, unit.attended, unit.rows);
  };
  std::map<decltype(weigh(Unit{})), std::uint32_t> known;
  UnitKinds kinds;
  kinds.of.resize(world.units.size());
  std::uint32_t kind = 0;
  for (std::size_t u = 0; u < kinds.of.size(); ++u) {
    if (u == 0 || weigh(world.units[u]) != weigh(world.units[u - 1])) {
      const auto number = static_cast<std::uint32_t>(known.size());
      kind = known.emplace(weigh(world.units[u]), number).first->second;
    }
    kinds.of[u] = kind;
  }
  kinds.count = known.size();
  return kinds;
}

namespace {

// Beside the CPU, where that helps.
double copy_seconds(const Executor& executor, const LinkLoad& load) {
  const double waited = executor.helped * (load.calls * executor.help_call + load.here);
  return load.bytes / executor.link + waited;
}

bool is_helped(const Executor& executor, const LinkLoad& load) {
  return executor.helped > 0 &&
         (executor.alone <= 0 || copy_seconds(executor, load) < load.bytes / executor.alone);
}

// Bytes a second.
double link_of(const Executor& executor, const LinkLoad& load) {
  return executor.helped > 0 && !is_helped(executor, load) ? executor.alone : executor.link;
}

}  // namespace

double link_seconds(const Executor& executor, const LinkLoad& load) {
  if (load.bytes <= 0) return executor.brought;
  const double seconds = is_helped(executor, load) ? copy_seconds(executor, load)
                                                   : load.bytes / link_of(executor, load);
  return seconds + load.on_cpu + executor.brought;
}

double waiting_seconds(const World& world, const Executor& executor, const LinkLoad& load,
                       Size from_disk) {
  const double read = static_cast<double>(from_disk);
  const double reading = read / world.disk_bandwidth;
  if (executor.link <= 0) return reading;
  const double link = link_of(executor, load);
  return (load.bytes - read) / link + std::max(read / link, reading);
}

namespace {

// What the choices put on one executor.
struct Load {
  bool busy = false;
  Size here = 0;
  Size from_ram = 0;
  Size from_disk = 0;
  Size read = 0;  // of that, by a pass
  Size extra = 0;
  Size piece = 0;  // the largest that is copied
  int copied_calls = 0;
  double compute = 0;
  double compute_here = 0;  // of units whose weights lie there
};

LinkLoad link_load(const Load& load, double on_cpu) {
  return {static_cast<double>(load.from_ram + load.from_disk),
          static_cast<double>(load.copied_calls), load.compute_here, on_cpu};
}

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
  if (world.order.empty()) return 0;
  int hops = 0;
  std::uint8_t last = choices[world.order[0]].executor;
  for (const std::uint32_t u : world.order) {
    const std::uint8_t executor = choices[u].executor;
    hops += executor != last ? 1 : 0;
    last = executor;
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
  const std::size_t units = world.units.size();
  double chain = 0;
  for (std::size_t u = 0; u < units;) {
    const std::uint8_t e = choices[u].executor;
    Load load = loads[e];
    load.busy = true;
    // Of equal units in a row only the first is looked at closely.
    const Unit* first = nullptr;
    double compute = 0;
    for (; u < units && choices[u].executor == e; ++u) {
      const Unit& unit = world.units[u];
      if (first == nullptr || unit.touched != first->touched ||
          unit.operations != first->operations || unit.calls != first->calls ||
          unit.by_input != first->by_input || unit.attended != first->attended) {
        first = &unit;
        compute = compute_seconds(unit, world.executors[e]);
      }
      chain += compute;
      load.compute += compute;
      load.extra += unit.extra;
      if (choices[u].store == Store::kHere) {
        load.here += unit.weights;
        load.compute_here += compute;
      } else {
        const Executor& executor = world.executors[e];
        const bool in_ram = choices[u].store == Store::kRam;
        (in_ram ? load.from_ram : load.from_disk) += unit.weights;
        if (!in_ram) load.read += copied_bytes(unit, executor);
        load.piece = std::max(load.piece, copied_piece(unit, executor));
        load.copied_calls += unit.calls;
      }
    }
    loads[e] = load;
  }
  timing.chain = chain;
  if (world.computes_on_cpu()) timing.on_cpu = loads.back().compute;
  Size read = 0;
  for (std::size_t e = 0; e < count; ++e) {
    const Load& load = loads[e];
    const Executor& executor = world.executors[e];
    timing.used[e] = load.here + load.extra + (load.busy ? executor.fixed : 0);
    timing.ram_used += load.from_ram;
    timing.disk_used += load.from_disk;
    read += load.read;
    if (executor.link > 0) timing.link[e] = link_seconds(executor, link_load(load, timing.on_cpu));
  }
  timing.disk = static_cast<double>(read) / world.disk_bandwidth;
  timing.hops = hops_of(world, choices);
  timing.chain += timing.hops * world.hop;
  timing.fits = give_slots(world, loads, &timing);
  if (!timing.fits) return timing;
  for (std::size_t e = 0; e < count; ++e) {
    if (timing.slots[e] != 1) continue;
    timing.chain += waiting_seconds(world, world.executors[e], link_load(loads[e], timing.on_cpu),
                                    loads[e].read);
  }
  timing.seconds = std::max(timing.chain, timing.disk);
  for (const double link : timing.link) timing.seconds = std::max(timing.seconds, link);
  return timing;
}

}  // namespace haul::core
