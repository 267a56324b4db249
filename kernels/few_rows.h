#pragma once

// A linear layer for a few rows of input, which is what decoding asks for: on the CPU at the speed
// of memory, where torch's is far from it.

#include <optional>

#include <ATen/core/Tensor.h>

namespace haul::kernels {

// Whether there is a way that is faster than torch's: few rows, on the CPU, no gradient asked for.
bool has_few_rows(const at::Tensor& x, const at::Tensor& weight);

// As at::linear, by an operator of its own, so that a weight which lies elsewhere comes as it does
// for any other. REQUIRES: has_few_rows(x, weight).
at::Tensor linear_of_few_rows(const at::Tensor& x, const at::Tensor& weight,
                              const std::optional<at::Tensor>& bias);

}  // namespace haul::kernels
