#pragma once

// Which modules are linear layers and which of them is the output head: the ones that quantised
// loading shrinks, that LoRA adapts and that mixed precision copies.

#include <functional>

#include "haul/module_sizes.h"

namespace haul::core {

// A parameter of a module, with every name of a tied group. `counted` is false where the tensor is
// already counted under an earlier name.
struct OwnedParameter {
  const ModuleSpec& module;
  const std::string& name;
  const Shape& shape;
  bool counted;
};
void for_each_parameter(const ModuleSizes& sizes,
                        const std::function<void(const OwnedParameter&)>& visit);

// A linear layer's matrix, in whichever order it lies. A checkpoint described by its names alone
// has no classes: there every matrix counts whose module is not named like an embedding.
bool is_linear_weight(const OwnedParameter& parameter);

// The last linear layer, where its output is the vocabulary; null when the model ends without such
// a head.
const ModuleSpec* output_head(const Description& description);

// Linear, and not of the head.
bool is_inner_linear_weight(const OwnedParameter& parameter, const ModuleSpec* head);

}  // namespace haul::core
