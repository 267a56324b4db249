#pragma once

// A GPU's driver loads a kernel when it is first used, and libraries begin then, which is a quarter
// of a second for a model's first tokens. A small model of the same family that runs while the
// weights are read has all of that behind it when the words are to come.

#include <ATen/core/Tensor.h>

#include "core/base/json.h"
#include "haul/description.h"
#include "haul/dtype.h"

namespace haul::runtime {

// Runs a prompt and a token through a decoder of this config whose layers are few and narrow, with
// heads as they are in `dimensions`. Throws what making or running a model throws.
void rehearse(const core::Json& config, const Dimensions& dimensions, at::Device device,
              Dtype dtype);

}  // namespace haul::runtime
