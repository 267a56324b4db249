#pragma once

// Which modules are linear layers and which of them is the output head: the ones that quantised
// loading shrinks, that LoRA adapts and that mixed precision copies.

#include <cstdint>
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

// What a linear layer's matrix gives: Linear holds (out, in), Conv1D (in, out).
std::int64_t output_width(const OwnedParameter& parameter);

// The linear layer over the vocabulary at the model's end, which only classifiers narrower than
// the hidden width may follow; null when there is none.
const ModuleSpec* output_head(const Description& description);

// Linear, and not of the head.
bool is_inner_linear_weight(const OwnedParameter& parameter, const ModuleSpec* head);

}  // namespace haul::core
