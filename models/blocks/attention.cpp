#include "models/blocks/attention.h"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>

#include "kernels/own_ops.h"
#include "kernels/rotate.h"

namespace haul::models {
namespace {

kernels::Looking looking(const AttentionMask& mask, const at::Tensor& queries,
                         const KeysValues& seen) {
  const at::Device device = queries.device();
  if (!mask.past.defined() && !mask.slopes.defined()) {
    return {mask.copies.of(mask.values, device), mask.causal};
  }
  kernels::Looking told{{}, false, mask.past, mask.slope_copies.of(mask.slopes, device)};
  // Only haul's ops on GPUs do without a tensor of it.
  if (device.is_cuda() && kernels::has_own_ops({&queries})) return told;
  if (!mask.before->defined()) *mask.before = kernels::mask_of(told, seen.keys);
  return {mask.copies.of(*mask.before, device), false, mask.past};
}

double factor(const at::Tensor& queries, std::optional<double> scale) {
  return scale.value_or(1 / std::sqrt(static_cast<double>(queries.size(3))));
}

}  // namespace

AttentionMask causal_mask(const MaskRequest& request) {
  if (request.replayed_past.defined()) return {{}, false, request.replayed_past};
  const auto options = at::TensorOptions().dtype(at::kLong).device(request.device);
  const std::int64_t total = request.past + request.tokens;
  const bool windowed = request.window > 0 && request.window < total;
  if (!request.attended.defined() && !windowed) return {{}, request.tokens > 1};
  const at::Tensor query = at::arange(request.past, total, options).unsqueeze(1);  // (T, 1)
  const at::Tensor key = at::arange(total, options).unsqueeze(0);                  // (1, S)
  at::Tensor seen = key <= query;
  if (windowed) seen = seen.logical_and(key > query - request.window);
  if (request.attended.defined()) {
    // Padding looks at itself, so that its values stay finite.
    seen = seen.logical_and(request.attended.unsqueeze(1)).logical_or(key == query);  // (B, T, S)
    return {seen.unsqueeze(1), false};
  }
  return {seen.unsqueeze(0).unsqueeze(0), false};
}

AttentionMask full_mask(const at::Tensor& attended) {
  if (!attended.defined()) return {};
  return {attended.unsqueeze(1).unsqueeze(1), false};
}

AttentionMask last_columns(const AttentionMask& mask, std::int64_t count) {
  if (!mask.values.defined() || mask.values.size(-1) == count) return mask;
  return {mask.values.narrow(-1, mask.values.size(-1) - count, count), mask.causal, mask.past};
}

AttentionMask with_bias(const AttentionMask& mask, const at::Tensor& bias) {
  AttentionMask seen = mask;
  if (mask.causal) {
    const auto options = bias.options().dtype(at::kLong);
    const std::int64_t total = bias.size(-1);
    const at::Tensor query = at::arange(total - bias.size(-2), total, options).unsqueeze(1);
    seen.values = at::arange(total, options) <= query;
  }
  if (!seen.values.defined()) return {bias, false};
  // Half precision reaches to 65504.
  const at::Tensor never =
      at::full({}, bias.scalar_type() == at::kHalf ? -65504.0 : -3e38, bias.options());
  return {at::where(seen.values, bias, never), false};
}

at::Tensor split_heads(const at::Tensor& x, std::int64_t head_size) {
  return x.view({x.size(0), x.size(1), -1, head_size}).transpose(1, 2);
}

at::Tensor attend(const at::Tensor& queries, const KeysValues& seen, const AttentionMask& mask,
                  std::optional<double> scale) {
  return kernels::attend(queries, seen.keys, seen.values, looking(mask, queries, seen),
                         factor(queries, scale));
}

at::Tensor attend(const LayerTokens& tokens, KvCache* cache, const AttentionMask& mask,
                  std::optional<double> scale) {
  kernels::Angles angles;
  if (tokens.rotation != nullptr) angles = tokens.rotation->on(tokens.queries.device());
  const std::optional<KeysValues> places =
      cache == nullptr ? std::nullopt : cache->places(tokens.layer, tokens.added);
  if (places) {
    const AttentionMask columns = last_columns(mask, places->keys.size(2));
    return kernels::keep_and_attend(tokens.queries, {tokens.added.keys, tokens.added.values},
                                    angles, {places->keys, places->values},
                                    looking(columns, tokens.queries, *places),
                                    factor(tokens.queries, scale));
  }
  const auto turned = [&](const at::Tensor& x) {
    return angles.cosine.defined() ? kernels::rotated(x, angles.cosine, angles.sine) : x;
  };
  KeysValues seen{turned(tokens.added.keys), tokens.added.values};
  const bool ordered = mask.values.defined() || mask.slopes.defined();
  if (cache != nullptr) seen = cache->extend(tokens.layer, seen, ordered);
  return attend(turned(tokens.queries), seen, last_columns(mask, seen.keys.size(2)), scale);
}

}  // namespace haul::models
