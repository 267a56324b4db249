#pragma once

// The bytes of each device in a plan. Pure.

#include <vector>

#include "core/place/model_world.h"
#include "haul/plan.h"

namespace haul::core {

// Consecutive units with the same choice.
struct Run {
  Choice choice;
  std::uint32_t first;
  std::uint32_t last;
  std::int64_t count;
  Unit sum;  // of what they take
};

std::vector<PlanDevice> devices_of(const World& world, const std::vector<Run>& runs,
                                   const Timing& timing, const MaxMemory& memory,
                                   const Workload& load);

// Of a map that was not made here: what it puts where, and the room its planner kept. With margins,
// also what a run takes on the device that it begins with; but no room for weights that are copied.
std::vector<PlanDevice> devices_of_map(const ModuleSizes& sizes, const MapOptions& options,
                                       const Plan& plan, const std::vector<Budget>& reserves,
                                       const Workload& load);

}  // namespace haul::core
