#pragma once

// Rotary positions: each pair of a head's elements turns with the token's place. B batch, H heads,
// K kv heads, T tokens, D head size; the first elements of a head turn, as many as there are
// angles.

#include <ATen/core/Tensor.h>

namespace haul::kernels {

// x (B, H, T, D) turned by cosine and sine (B or 1, T, …).
at::Tensor rotated(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine);

// Tokens of a pass, and the places of a cache that become theirs.
struct NewTokens {
  const at::Tensor& keys;         // (B, K, T, D)
  const at::Tensor& values;       // likewise
  const at::Tensor& kept_keys;    // likewise: where turned keys go
  const at::Tensor& kept_values;  // and values
  // How many tokens the cache had, a number on its device, where that is to be asked when the work
  // runs: `kept_keys` and `kept_values` are then all of the room, (B, K, room, D).
  at::Tensor past = {};
};

// Puts these keys, and the values of the tokens, where they are kept. By the operator haul::keep on
// GPUs where the place is asked for, and that serves.
void keep(const NewTokens& tokens, const at::Tensor& keys);

// Turns queries (B, H, T, D) and keys; keeps keys and values. Returns the queries. By the operator
// haul::rotate_into where that serves.
at::Tensor rotate_into(const at::Tensor& queries, const NewTokens& tokens, const at::Tensor& cosine,
                       const at::Tensor& sine);
at::Tensor plain_rotate_into(const at::Tensor& queries, const NewTokens& tokens,
                             const at::Tensor& cosine, const at::Tensor& sine);

}  // namespace haul::kernels
