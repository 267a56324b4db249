#pragma once

#include <string>

#include "haul/plan.h"

namespace haul::cli {

// A plan for a terminal: a bar a device coloured by what fills it, the table of bytes, the way of
// the work and the predictions. Plain text where the output takes no colours.
std::string plan_view(const Plan& plan, int width);

}  // namespace haul::cli
