#pragma once

// Attention over keys and values. B batch, H heads, K kv heads, T tokens that look, S tokens that
// are looked at, D head size.

#include <ATen/core/Tensor.h>

#include "kernels/angles.h"

namespace haul::kernels {

// Who looks at whom. With neither all look at all.
struct Looking {
  at::Tensor mask;      // (B or 1, H or 1, T, S): bool, or floats to add to the scores
  bool causal = false;  // token i at the first i + 1; S is T
  // Of a single token: how many are before it, a number on the device, where that is to be asked
  // when the work runs. It looks at those and itself; a mask may say the same.
  at::Tensor past = {};
};

// What a token with so many before it may look at, of a room: as a mask.
at::Tensor mask_of_past(const at::Tensor& past, std::int64_t room);

// queries (B, H, T, D) over keys and values (B, K, S, D), to (B, T, H * D). By the operator
// haul::attend where that serves: on the CPU a single token in F32 or BF16 with a mask of floats or
// none, and in F32 several without a mask; on GPUs a single token in either and no mask.
at::Tensor attend(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                  const Looking& looking, double scale);
at::Tensor plain_attend(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                        const Looking& looking, double scale);

struct KeysAndValues {  // (B, K, S, D)
  const at::Tensor& keys;
  const at::Tensor& values;
};

// The same of tokens whose keys and values are `added`: these, turned like the queries where there
// are angles, become the last of those that are looked at; where it says how many there are before,
// the next behind those. By the operator haul::keep_and_attend on GPUs where haul::attend serves,
// else one after the other.
at::Tensor keep_and_attend(const at::Tensor& queries, const KeysAndValues& added,
                           const Angles& angles, const KeysAndValues& seen, const Looking& looking,
                           double scale);
at::Tensor keep_then_attend(const at::Tensor& queries, const KeysAndValues& added,
                            const Angles& angles, const KeysAndValues& seen, const Looking& looking,
                            double scale);

}  // namespace haul::kernels
