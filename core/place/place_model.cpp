#include "core/place/place_model.h"

#include <algorithm>

#include "core/place/best.h"
#include "core/place/workload.h"

namespace haul::core {
namespace {

Unit all_units(const World& world) {
  Unit all;
  for (const Unit& unit : world.units) all.add_memory(unit);
  return all;
}

bool one_holds_all(const World& world) {
  const Unit all = all_units(world);
  return std::any_of(world.executors.begin(), world.executors.end(), [&](const Executor& executor) {
    return executor.device.is_accelerator() &&
           executor.fixed + all.weights + all.extra <= executor.capacity;
  });
}

Bytes room_on_gpus(const World& world) {
  Bytes sum = 0;
  for (const Executor& executor : world.executors) {
    if (!executor.device.is_accelerator()) continue;
    sum += static_cast<Bytes>(std::max<Size>(0, executor.capacity - executor.fixed));
  }
  return sum;
}

// Whether a GPU has too little memory for the keys and values of all layers.
bool keeps_kv_beside_gpus(const World& world, const Choices& choices) {
  if (!world.has_gpu() || !world.computes_on_cpu()) return false;
  for (std::size_t u = 0; u < choices.size(); ++u) {
    const Unit& unit = world.units[u];
    const bool has_kv = unit.extra > unit.buffers + unit.buffer_margin;
    if (has_kv && choices[u].executor + 1U == world.executors.size()) return true;
  }
  return false;
}

using WorldFor = std::function<ModelWorld(const Workload&)>;
using PlaceIn = std::function<std::optional<Placement>(const ModelWorld&)>;

// Where not all lies on one GPU. What lies in RAM takes memory of GPUs, so that more may lie there:
// until that is what was counted, or costs nothing.
Placed place_apart(const Workload& load, const WorldFor& world_for, const PlaceIn& place_in) {
  constexpr int kTries = 4;
  const World least = world_for(apart(load, 0)).world;
  const Bytes kv = load.kv_in_ram ? load.kv : 0;
  const auto all = static_cast<Bytes>(all_units(least).weights);
  const Bytes most = kv + std::min(all, static_cast<Bytes>(least.ram));
  Bytes in_ram = std::min(most, kv + all - std::min(all, room_on_gpus(least)));
  Placed best{apart(load, in_ram), {}, {}};
  for (int i = 0; i < kTries; ++i) {
    const ModelWorld model = world_for(apart(load, in_ram));
    std::optional<Placement> placement = place_in(model);
    Bytes found = kv;  // if nothing fits, with as little in RAM as may be
    if (placement) {
      const double counted = placement->timing.seconds;
      found = in_ram_for_gpus(model.world, placement->choices, load);
      const Workload exact = apart(load, found);
      ModelWorld world = world_for(exact);
      placement->timing = predict(world.world, placement->choices);
      const double seconds = placement->timing.seconds;
      if (placement->timing.fits && (!best.placement || seconds < best.placement->timing.seconds)) {
        best = {exact, std::move(world), std::move(placement)};
      }
      if (found <= in_ram || meets(seconds, counted)) break;
    } else if (i > 0 || in_ram == kv) {
      break;
    }
    in_ram = i + 2 < kTries ? found : most;
  }
  if (best.placement) {
    Placement& found = *best.placement;
    found.bound = lower_bound(least, kinds_of(least));  // others may have less in RAM
    found.proven = found.proven && meets(found.timing.seconds, found.bound);
  } else {
    best.model = world_for(best.load);
  }
  return best;
}

}  // namespace

Bytes in_ram_for_gpus(const World& world, const Choices& choices, const Workload& load) {
  Bytes sum = load.kv_in_ram ? load.kv : 0;
  for (std::size_t u = 0; u < choices.size(); ++u) {
    if (choices[u].store == Store::kRam) sum += static_cast<Bytes>(world.units[u].weights);
  }
  return sum;
}

Placed place_model(const Description& description, const ModuleSizes& sizes,
                   const PlanRequest& request, const Profile& profile, MapMode mode,
                   const std::function<std::vector<Choices>(const ModelWorld&)>& more) {
  const WorldFor world_for = [&](const Workload& load) {
    return build_world(description, sizes, request.options, request.memory, profile, load);
  };
  const PlaceIn place_in = [&](const ModelWorld& model) {
    return more ? place(model.world, mode, [&] { return more(model); }) : place(model.world, mode);
  };
  Placed placed{plan_workload(description, request, profile), {}, {}};
  placed.model = world_for(placed.load);
  const World& world = placed.model.world;
  const bool whole = !world.has_gpu() || placed.load.of_driver() == 0 || one_holds_all(world);
  if (whole) placed.placement = place_in(placed.model);
  if (!whole || (placed.placement && placed.load.of_driver() > 0 &&
                 in_ram_for_gpus(world, placed.placement->choices, placed.load) > 0)) {
    // One that has room for all but to record passes is not given all.
    placed = place_apart(placed.load, world_for, [&](ModelWorld model) {
      const Unit all = all_units(model.world);
      for (Executor& executor : model.world.executors) {
        if (!executor.device.is_accelerator()) continue;
        executor.capacity =
            std::min(executor.capacity, executor.fixed + all.weights + all.extra - 1);
      }
      return place_in(model);
    });
  }
  // Keys and values lie where they are looked at as long as that goes: what they take there from
  // weights would cross the link instead of them.
  const std::optional<Placement>& here = placed.placement;
  if (here && !keeps_kv_beside_gpus(placed.model.world, here->choices)) return placed;
  const std::optional<Workload> moved = with_kv_in_ram(placed.load, description, request);
  if (!moved) return placed;
  Placed other = place_apart(*moved, world_for,
                             [&](const ModelWorld& model) { return place(model.world, mode); });
  std::optional<Placement>& there = other.placement;
  if (!there || (here && there->timing.seconds >= here->timing.seconds)) return placed;
  if (here) {  // nothing is faster either way
    there->bound = std::min(there->bound, here->bound);
    there->proven = there->proven && there->timing.seconds <= here->bound;
  }
  return other;
}

}  // namespace haul::core
