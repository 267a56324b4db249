#pragma once

// Attention over keys and values, and what tells who may look at whom. Pure functions.
// B batch, T tokens of this pass, S tokens that are looked at, H heads, K kv heads, D head size.

#include <cstdint>
#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>

#include "kernels/attend.h"
#include "models/blocks/copies.h"
#include "models/blocks/kv_cache.h"
#include "models/blocks/rope.h"

namespace haul::models {

// Who may look at whom. Where `causal` alone says it, there is no tensor.
struct AttentionMask {
  // Undefined: all may look at all, or causally. Else (B or 1, H or 1, T or 1, S): bool, or floats
  // to add to the scores.
  at::Tensor values;
  bool causal = false;
  at::Tensor past = {};  // KvCache::replayed_past(): the token looks at those and itself
  // Of a single token that looks at all before it: place_bias() of these (H), on the host, is added
  // to the scores.
  at::Tensor slopes = {};
  Copies slope_copies = {};  // which may be kept for other passes
  Copies copies = {};        // of the values
  // Of what is past and of slopes, where layers need it as values, which then share it.
  std::shared_ptr<at::Tensor> before = std::make_shared<at::Tensor>();
};

struct MaskRequest {
  std::int64_t tokens = 0;  // T
  std::int64_t past = 0;    // tokens before them
  std::int64_t window = 0;  // a token looks at so many, itself included; 0: at all before it
  // (B, past + T) bool, true where a token is and not padding; undefined: everywhere.
  at::Tensor attended;
  c10::Device device = c10::kCPU;
  at::Tensor replayed_past = {};  // of the cache
};

// Each token looks at itself and those before it. Spans all tokens; see last_columns.
AttentionMask causal_mask(const MaskRequest& request);
// Each looks at all of `attended` (B, S).
AttentionMask full_mask(const at::Tensor& attended);
// For a layer that kept the last S tokens alone.
AttentionMask last_columns(const AttentionMask& mask, std::int64_t count);
using kernels::place_bias;
// With this bias on the scores: (1 or B, H, T, S), of the dtype of the queries.
AttentionMask with_bias(const AttentionMask& mask, const at::Tensor& bias);

// queries (B, H, T, D) to (B, T, H * D). Without a scale, 1 / sqrt(D).
at::Tensor attend(const at::Tensor& queries, const KeysValues& seen, const AttentionMask& mask,
                  std::optional<double> scale = std::nullopt);

// What a pass's tokens bring to a layer.
struct LayerTokens {
  std::int64_t layer = 0;
  at::Tensor queries;                  // (B, H, T, D)
  KeysValues added;                    // (B, K, T, D)
  const Rotation* rotation = nullptr;  // by which queries and keys turn; null: they do not
};

// The same over these tokens and those before them, which the cache has, where there is one; it
// then has these, too.
at::Tensor attend(const LayerTokens& tokens, KvCache* cache, const AttentionMask& mask,
                  std::optional<double> scale = std::nullopt);

// (B, T, H * D) to (B, H, T, D).
at::Tensor split_heads(const at::Tensor& x, std::int64_t head_size);

}  // namespace haul::models
