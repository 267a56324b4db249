#pragma once

#include "haul/plan.h"

namespace haul::core {

// For a plan that does not fit: how much each device alone would have to grow, and which other
// changes would help. Makes a few dozen plans.
void add_shortfall(const Description& description, const PlanRequest& request,
                   const Profile& profile, Plan* plan);

}  // namespace haul::core
