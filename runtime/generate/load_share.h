#pragma once

// A model of which several processes have a share of every layer each.

#include <string>

#include "core/describe/cut.h"
#include "haul/torch/model.h"
#include "models/blocks/spread.h"

namespace haul::runtime {

struct ModelShare {
  core::TensorPart part;
  models::Sum sum;  // over the processes; may be empty for one alone
};

// As load_model(), which has all of the model: the plan, the memory and the KV cache are those of
// the share. Each pass is run by all processes at once. Throws what core::cut_model() throws too.
LoadedModel load_share(const std::string& name, const ModelOptions& options,
                       const ModelShare& share);

}  // namespace haul::runtime
