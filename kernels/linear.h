#pragma once

// Linear layers and what follows them. Pure.

#include <ATen/core/Tensor.h>

#include "kernels/row_math.h"

namespace haul::kernels {

// x (…, in) times weight (out, in), and bias (out) and then residual (…, out) added where they are
// defined. By the operator haul::linear where that serves.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {},
                  const at::Tensor& residual = {});
at::Tensor plain_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {},
                        const at::Tensor& residual = {});

// curve(gate) * linear(x, weight, bias), by the operator haul::gated_linear where that serves.
// `gate` is (…, out).
at::Tensor gated_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        const at::Tensor& gate, Curve curve);
at::Tensor plain_gated_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                              const at::Tensor& gate, Curve curve);

}  // namespace haul::kernels
