#pragma once

// A norm without mean and bias, in float32 inside.

#include <ATen/core/Tensor.h>

namespace haul::kernels {

// Of each row of x (…, C), times weight (C). In the weight's dtype. By the operator haul::rms_norm
// where that serves.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon);
at::Tensor plain_rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

}  // namespace haul::kernels
