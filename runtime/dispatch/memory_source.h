#pragma once

// Placing a model that has its values. One thread.

#include <memory>

#include "haul/torch/dispatch.h"
#include "runtime/dispatch/model_tensors.h"

namespace haul::runtime {

class WeightStore;

// `whole`: its offloaded weights come and go all together.
std::shared_ptr<WeightStore> place_values(const ModelTensors& model, const Placement& placement,
                                          const DispatchOptions& options, bool whole);

}  // namespace haul::runtime
