#pragma once

// Attention over keys and values. B batch, H heads, K kv heads, T tokens that look, S tokens that
// are looked at, D head size.

#include <ATen/core/Tensor.h>

namespace haul::kernels {

// Who looks at whom. With neither all look at all.
struct Looking {
  at::Tensor mask;      // (B or 1, H or 1, T, S): bool, or floats to add to the scores
  bool causal = false;  // token i at the first i + 1; S is T
  // Of a single token: how many are before it, a number on the device, where that is to be asked
  // when the work runs. The mask, over all of the room, says the same.
  at::Tensor past = {};
};

// queries (B, H, T, D) over keys and values (B, K, S, D), to (B, T, H * D). By the operator
// haul::attend where that serves: on the CPU a single token in F32 or BF16 with a mask of floats or
// none, and in F32 several without a mask; on GPUs a single token in either and no mask.
at::Tensor attend(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                  const Looking& looking, double scale);
at::Tensor plain_attend(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                        const Looking& looking, double scale);

}  // namespace haul::kernels
