#pragma once

// A norm with mean and bias, in float32 inside.

#include <ATen/core/Tensor.h>

namespace haul::kernels {

// Of each row of x (…, C), times weight (C) and plus bias (C). By the operator haul::layer_norm on
// GPUs where that serves.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      double epsilon);

}  // namespace haul::kernels
