#pragma once

// The models that `haul bench` makes: configs of known shapes, for weights of random numbers.

#include <string>
#include <vector>

#include "core/base/json.h"

namespace haul::cli {

std::vector<std::string> bench_shapes();

// A shape by its name, or any config.json by its path. Throws Error(kUsage) for a name that is
// neither, Error(kCorrupt) for a file that is no JSON object.
core::Json bench_config(const std::string& shape);

}  // namespace haul::cli
