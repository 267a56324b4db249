#include "models/blocks/attention.h"

#include <cmath>
#include <random>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

namespace haul::models {
namespace {

constexpr std::int64_t kBatch = 2;

MaskRequest request_of(std::int64_t tokens, std::int64_t past, std::int64_t window,
                       const at::Tensor& attended = {}) {
  return {tokens, past, window, attended, c10::kCPU};
}
AttentionMask causal(std::int64_t tokens, std::int64_t past, std::int64_t window,
                     const at::Tensor& attended = {}) {
  return causal_mask(request_of(tokens, past, window, attended));
}

// Whether the token at place t of a pass, which comes after `past` others, may look at s, as the
// kernel reads the mask.
bool allows(const AttentionMask& mask, std::int64_t past, std::int64_t b, std::int64_t t,
            std::int64_t s) {
  if (!mask.values.defined()) return !mask.causal || s <= past + t;
  const at::Tensor rows = mask.values[mask.values.size(0) == 1 ? 0 : b][0];
  return rows[rows.size(0) == 1 ? 0 : t][s].item<bool>();
}

void expect_causal(const MaskRequest& request) {
  const AttentionMask mask = causal_mask(request);
  ASSERT_FALSE(mask.causal && mask.values.defined());
  for (std::int64_t b = 0; b < kBatch; ++b) {
    for (std::int64_t t = 0; t < request.tokens; ++t) {
      const std::int64_t self = request.past + t;
      for (std::int64_t s = 0; s < request.past + request.tokens; ++s) {
        const bool token = !request.attended.defined() || request.attended[b][s].item<bool>();
        const bool near = request.window == 0 || self - s < request.window;
        ASSERT_EQ(allows(mask, request.past, b, t, s), s == self || (s < self && near && token))
            << request.tokens << " after " << request.past << ", window " << request.window
            << ": from " << t << " to " << s;
      }
    }
  }
}

TEST(Copies, AreMadeOnceForEachDevice) {
  const Copies copies;
  const at::Tensor tensor = at::ones({2});
  EXPECT_TRUE(copies.of(tensor, at::kCPU).is_same(tensor));
  const at::Tensor there = copies.of(tensor, at::kMeta);
  EXPECT_TRUE(there.is_meta());
  const Copies same = copies;
  EXPECT_TRUE(same.of(tensor, at::kMeta).is_same(there));
  EXPECT_FALSE(copies.of({}, at::kMeta).defined());
}

TEST(CausalMask, LetsATokenSeeItselfAndThoseBeforeIt) {
  for (const std::int64_t tokens : {1, 2, 5}) {
    for (const std::int64_t past : {0, 1, 4}) {
      for (const std::int64_t window : {0, 1, 3, 5, 100}) {
        expect_causal(request_of(tokens, past, window));
        at::Tensor attended = at::ones({kBatch, past + tokens}, at::kBool);
        attended[0][0] = false;
        if (past + tokens > 3) attended[1].narrow(0, 0, 3).fill_(false);
        expect_causal(request_of(tokens, past, window, attended));
      }
    }
  }
}

TEST(CausalMask, NeedsNoTensorWithoutPaddingAndWindow) {
  for (const std::int64_t past : {0, 9}) {
    EXPECT_FALSE(causal(5, past, 0).values.defined());
    EXPECT_TRUE(causal(5, past, 0).causal);
  }
  EXPECT_FALSE(causal(1, 9, 0).values.defined());
  EXPECT_FALSE(causal(1, 9, 0).causal);
  EXPECT_FALSE(causal(5, 0, 5).values.defined());
}

TEST(FullMask, LetsEveryPlaceSeeAllThatIsNotPadding) {
  EXPECT_FALSE(full_mask({}).values.defined());
  EXPECT_FALSE(full_mask({}).causal);
  const at::Tensor attended = at::tensor({1, 1, 0, 1, 0, 0}, at::kInt).view({2, 3}).to(at::kBool);
  const AttentionMask mask = full_mask(attended);
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t t = 0; t < 4; ++t) {
      for (std::int64_t s = 0; s < 3; ++s) {
        EXPECT_EQ(allows(mask, 0, b, t, s), attended[b][s].item<bool>());
      }
    }
  }
}

TEST(LastColumns, LeaveTheLatestTokens) {
  const AttentionMask mask = causal(2, 4, 3);
  const AttentionMask last = last_columns(mask, 4);
  EXPECT_TRUE(at::equal(last.values, mask.values.narrow(-1, 2, 4)));
  EXPECT_TRUE(at::equal(last_columns(mask, 6).values, mask.values));
  EXPECT_TRUE(last_columns({{}, true}, 3).causal);
}

TEST(WithBias, AddsItWhereATokenMayLookAndBarsTheRest) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    at::Tensor attended = at::ones({kBatch, 4}, at::kBool);
    attended[1][0] = false;
    const std::vector<std::pair<AttentionMask, std::int64_t>> masks = {
        {{}, 0},
        {causal(4, 0, 0), 0},
        {causal(4, 0, 2), 0},
        {causal(2, 2, 0), 2},
        {causal(4, 0, 0, attended), 0},
        {full_mask(attended), 0}};
    for (const auto& [mask, past] : masks) {
      const at::Tensor bias = at::randn({1, 3, 4 - past, 4}, dtype);
      const AttentionMask both = with_bias(mask, bias);
      ASSERT_FALSE(both.causal);
      ASSERT_EQ(both.values.scalar_type(), dtype);
      ASSERT_TRUE(both.values.isfinite().all().item<bool>());
      const std::int64_t tokens = 4 - past;
      const at::Tensor values = both.values.expand({kBatch, 3, tokens, 4});
      for (std::int64_t i = 0; i < kBatch * 3 * tokens * 4; ++i) {
        const std::int64_t b = i / (12 * tokens), h = i / (4 * tokens) % 3, t = i / 4 % tokens,
                           s = i % 4;
        const auto found = values[b][h][t][s].item<float>();
        if (allows(mask, past, b, t, s)) {
          EXPECT_EQ(found, bias[0][h][t][s].item<float>());
        } else {
          EXPECT_LT(found, -60000);
        }
      }
    }
  }
}

// One head, one query after another, in doubles.
at::Tensor slow_attend(const at::Tensor& queries, const KeysValues& seen, const AttentionMask& mask,
                       double scale) {
  const std::int64_t heads = queries.size(1), tokens = queries.size(2), size = queries.size(3);
  const std::int64_t share = heads / seen.keys.size(1), count = seen.keys.size(2);
  at::Tensor result = at::zeros({kBatch, tokens, heads * size}, at::kDouble);
  for (std::int64_t b = 0; b < kBatch; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const at::Tensor keys = seen.keys[b][h / share].to(at::kDouble);
      const at::Tensor values = seen.values[b][h / share].to(at::kDouble);
      for (std::int64_t t = 0; t < tokens; ++t) {
        const at::Tensor scores = keys.matmul(queries[b][h][t].to(at::kDouble)) * scale;
        at::Tensor sum = at::zeros({size}, at::kDouble);
        double weights = 0;
        for (std::int64_t s = 0; s < count; ++s) {
          if (!allows(mask, count - tokens, b, t, s)) continue;
          const double weight = std::exp(scores[s].item<double>());
          weights += weight;
          sum += values[s] * weight;
        }
        result[b][t].narrow(0, h * size, size).copy_(sum / weights);
      }
    }
  }
  return result;
}

TEST(Attend, GivesWhatASlowReferenceGivesAlsoWhereHeadsShareKeys) {
  torch::manual_seed(2);
  constexpr std::int64_t kHeads = 4, kSize = 6, kPast = 3;
  at::Tensor attended = at::ones({kBatch, kPast + 1}, at::kBool);
  attended[0].narrow(0, 0, 2).fill_(false);
  for (const std::int64_t kv_heads : {1, 2, 4}) {
    const auto check = [&](std::int64_t tokens, std::int64_t total, const AttentionMask& mask) {
      const at::Tensor queries = at::randn({kBatch, kHeads, tokens, kSize});
      const KeysValues seen{at::randn({kBatch, kv_heads, total, kSize}),
                            at::randn({kBatch, kv_heads, total, kSize})};
      for (const std::optional<double> scale : {std::optional<double>(), std::optional(0.3)}) {
        const at::Tensor expected =
            slow_attend(queries, seen, mask, scale.value_or(1 / std::sqrt(kSize)));
        const at::Tensor found = attend(queries, seen, mask, scale);
        ASSERT_EQ(found.sizes().vec(), expected.sizes().vec());
        EXPECT_TRUE(at::allclose(found.to(at::kDouble), expected, 1e-4, 1e-5))
            << kv_heads << " kv heads, " << tokens << " tokens of " << total;
      }
    };
    check(5, 5, causal(5, 0, 0));
    check(1, kPast + 1, causal(1, kPast, 0));
    check(2, kPast + 2, causal(2, kPast, 0));
    check(40, kPast + 40, causal(40, kPast, 0));
    check(5, 5, causal(5, 0, 2));
    check(1, kPast + 1, causal(1, kPast, 0, attended));
    check(3, kPast + 1, full_mask(attended));
  }
}

TEST(Attend, WithSlopesGivesTheBitsOfTheirBias) {
  torch::manual_seed(4);
  const at::Tensor slopes = at::tensor({0.5F, 0.25F, 0.1F});
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor queries = at::randn({kBatch, 3, 1, 6}).to(dtype);
    const KeysValues seen{at::randn({kBatch, 3, 40, 6}).to(dtype),
                          at::randn({kBatch, 3, 40, 6}).to(dtype)};
    AttentionMask mask = causal(1, 39, 0);
    mask.slopes = slopes;
    const at::Tensor bias = place_bias(slopes, at::arange(40).unsqueeze(0), dtype);
    EXPECT_TRUE(at::equal(attend(queries, seen, mask),
                          attend(queries, seen, with_bias(causal(1, 39, 0), bias))));
    EXPECT_TRUE(at::equal(*mask.before, bias));  // which the next layer shares
  }
}

TEST(SplitHeads, PutsHeadsBeforeTokens) {
  const at::Tensor x = at::rand({2, 3, 8});
  const at::Tensor heads = split_heads(x, 4);
  ASSERT_EQ(heads.sizes().vec(), (std::vector<std::int64_t>{2, 2, 3, 4}));
  EXPECT_EQ(heads[1][1][2][3].item<float>(), x[1][2][7].item<float>());
  EXPECT_EQ(heads[0][1][1][0].item<float>(), x[0][1][4].item<float>());
}

}  // namespace
}  // namespace haul::models
