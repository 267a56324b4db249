#pragma once

// The functions that configs name.

#include <string>

#include <ATen/core/Tensor.h>

namespace haul::models {

using Activation = at::Tensor (*)(const at::Tensor&);

// "gelu", "gelu_new", "silu", …, as Transformers means them. Throws Error(kUnsupported) that lists
// those that are known.
Activation activation(const std::string& name);

}  // namespace haul::models
