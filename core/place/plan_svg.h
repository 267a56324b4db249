#pragma once

#include <string>

#include "haul/plan.h"

namespace haul::core {

// One bar a device, coloured by what fills it, the way of the work, and the predictions: a picture
// of 960 by about 400 for a slide or a page.
std::string plan_svg(const Plan& plan);

}  // namespace haul::core
