#pragma once

// Attention over keys and values. B batch, H heads, K kv heads, T tokens that look, S tokens that
// are looked at, D head size.

#include <ATen/core/Tensor.h>

#include "kernels/angles.h"

namespace haul::kernels {

// Who looks at whom. With neither all look at all.
struct Looking {
  at::Tensor mask;      // (B or 1, H or 1, T or 1, S): bool, or floats to add to the scores
  bool causal = false;  // token i at itself and all before it: the first S - T + i + 1
  // Of a single token: how many are before it, a number on the device, where that is to be asked
  // when the work runs. It looks at those and itself; a mask may say the same.
  at::Tensor past = {};
  // Of a single token, without a mask: each head's, (H) of float32 that lie one after the other
  // where the queries are. The place_bias() of all keys is added to the scores.
  at::Tensor slopes = {};
};

// Each key's place, (B or 1, S), times each head's slope (H), as (B or 1, H, 1, S).
at::Tensor place_bias(const at::Tensor& slopes, const at::Tensor& places, at::ScalarType dtype);
// What the past and slopes say of these keys, as a mask; undefined where there is neither.
at::Tensor mask_of(const Looking& looking, const at::Tensor& keys);

// queries (B, H, T, D) over keys and values (B, K, S, D), to (B, T, H * D). By the operator
// haul::attend where that serves: on the CPU a single token in F32, BF16 or F16 with a mask of
// floats or none, and in F32 several without a mask; on GPUs a single token, without a
// mask.
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
