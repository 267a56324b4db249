#pragma once

// The functions that configs name.

#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "kernels/row_math.h"

namespace haul::models {

struct Activation {
  at::Tensor (*function)(const at::Tensor&);
  std::optional<kernels::Curve> curve = std::nullopt;  // where kernels have it

  at::Tensor operator()(const at::Tensor& x) const { return function(x); }
};

// "gelu", "gelu_new", "silu", …, as Transformers means them. Throws Error(kUnsupported) that lists
// those that are known.
Activation activation(const std::string& name);

}  // namespace haul::models
