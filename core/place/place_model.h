#pragma once

// The planner's search for a model: with what memory of GPUs, which depends on what is found, and
// with keys and values where they may lie.

#include <functional>
#include <optional>
#include <vector>

#include "core/place/model_world.h"
#include "core/place/place.h"
#include "haul/plan.h"

namespace haul::core {

struct Placed {
  Workload load;
  ModelWorld model;
  std::optional<Placement> placement;  // nothing: it does not fit
};

// `more` as that of place(), of the world that it is asked about.
Placed place_model(const Description& description, const ModuleSizes& sizes,
                   const PlanRequest& request, const Profile& profile, MapMode mode,
                   const std::function<std::vector<Choices>(const ModelWorld&)>& more);

// Weights that are copied from RAM, and keys and values.
Bytes in_ram_for_gpus(const World& world, const Choices& choices, const Workload& load);

}  // namespace haul::core
