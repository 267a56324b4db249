#pragma once

// Linear layers for a few rows of input, which is what decoding asks for, and what follows them: on
// the CPU at the speed of memory, where torch's are far from it. Pure.

#include <optional>

#include <ATen/core/Tensor.h>

#include "kernels/row_math.h"

namespace haul::kernels {

// x (…, in) times weight (out, in), and bias (out) and then residual (…, out) added where they are
// defined. By the operator haul::few_rows for few rows, else by torch's linear.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {},
                  const at::Tensor& residual = {});
at::Tensor plain_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        const at::Tensor& residual);

// curve(gate) * linear(x, weight, bias), by haul::gated_rows for few rows. `gate` (…, out); its
// memory is free before the product begins, if nobody else has it.
at::Tensor gated_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        at::Tensor gate, Curve curve);
at::Tensor plain_gated_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                              at::Tensor gate, Curve curve);

// Whether the operators serve: few rows, and as has_own_ops says. `other` is the gate or residual.
bool has_few_rows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& other = {});

}  // namespace haul::kernels
