#pragma once

// Attention of one token over those before it. B batch, H heads, K kv heads, S tokens, D head size.

#include <ATen/core/Tensor.h>

namespace haul::kernels {

// queries (B, H, 1, D) over keys and values (B, K, S, D), to (B, 1, H * D). `bias` (B or 1, H or 1,
// 1, S) is added to the scores where it is defined. By the operator haul::attend_one where that
// serves.
at::Tensor attend_one(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                      const at::Tensor& bias, double scale);
at::Tensor plain_attend_one(const at::Tensor& queries, const at::Tensor& keys,
                            const at::Tensor& values, const at::Tensor& bias, double scale);

}  // namespace haul::kernels
