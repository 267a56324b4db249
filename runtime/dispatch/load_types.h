#pragma once

// The dtypes that a checkpoint is loaded in. Pure.

#include <string>

#include "haul/dtype.h"
#include "haul/torch/dispatch.h"

namespace haul::runtime {

// What a float tensor of this name becomes. REQUIRES: options.dtype.
Dtype dtype_of(const std::string& name, const LoadOptions& options);

}  // namespace haul::runtime
