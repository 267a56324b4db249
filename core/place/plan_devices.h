#pragma once

// The bytes of each device in a plan. Pure.

#include <array>
#include <vector>

#include "core/place/model_world.h"
#include "haul/plan.h"

namespace haul::core {

// What the units of one executor take together, by where their weights lie.
struct Held {
  bool busy = false;
  std::array<Unit, 3> from;  // by Store

  const Unit& operator[](Store store) const { return from[static_cast<std::size_t>(store)]; }
};

std::vector<PlanDevice> devices_of(const World& world, const std::vector<Held>& held,
                                   const Timing& timing, const MaxMemory& memory,
                                   const Workload& load);

// Of a map that was not made here: what it puts where, and the room its planner kept. With margins,
// also what a run takes on the device that it begins with; but no room for weights that are copied.
std::vector<PlanDevice> devices_of_map(const ModuleSizes& sizes, const MapOptions& options,
                                       const Plan& plan, const std::vector<Budget>& reserves,
                                       const Workload& load);

}  // namespace haul::core
