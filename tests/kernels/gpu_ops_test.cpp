// haul's kernels on a GPU, each against its plain twin.

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <gtest/gtest.h>

#include "haul/estimate.h"
#include "kernels/angles.h"
#include "kernels/attend.h"
#include "kernels/layer_norm.h"
#include "kernels/likeliest.h"
#include "kernels/linear.h"
#include "kernels/own_ops.h"
#include "kernels/rms_norm.h"
#include "kernels/rotate.h"
#include "kernels/tell.h"

namespace haul::kernels {
namespace {

at::Tensor some(at::IntArrayRef sizes, at::ScalarType type) {
  return at::randn(sizes, at::TensorOptions().dtype(type).device(at::kCUDA));
}

at::Tensor exact(const at::Tensor& x) {
  return x.defined() ? x.to(at::kDouble) : x;
}

class GpuOps : public testing::TestWithParam<at::ScalarType> {
 protected:
  at::Tensor some(at::IntArrayRef sizes) const { return kernels::some(sizes, type); }

  // What a sum of products in float32, in any order, may be away from the exact one.
  void expect_product(const at::Tensor& found, const at::Tensor& x, const at::Tensor& weight,
                      const at::Tensor& bias) const {
    const at::Tensor expected = plain_linear(exact(x), exact(weight), exact(bias));
    const at::Tensor sizes = at::linear(exact(x).abs(), exact(weight).abs());
    const double terms = static_cast<double>(weight.size(1)) + 1;
    const at::Tensor most =
        terms * 0x1p-24 * (sizes + expected.abs()) + last_place * expected.abs();
    EXPECT_EQ(found.scalar_type(), x.scalar_type());
    EXPECT_EQ(found.sizes(), expected.sizes());
    EXPECT_TRUE(((exact(found) - expected).abs() <= most).all().item<bool>())
        << x.sizes() << " by " << weight.sizes();
  }

  const at::ScalarType type = GetParam();
  const double last_place = type == at::kFloat ? 0x1p-23 : 0x1p-8;  // of a number
  // Of a BF16; of sums in float32.
  const double rounding = type == at::kFloat ? 0x1p-18 : 0x1p-8;
  // Numbers of a 16-byte access.
  const std::int64_t wide = 16 / static_cast<std::int64_t>(c10::elementSize(type));
};

TEST_P(GpuOps, LinearGivesWhatTorchsGives) {
  at::manual_seed(7);
  for (const std::int64_t rows : {1, 2, 3, 4, 5, 40}) {
    for (const std::int64_t width : {1, 7, 8, 12, 16, 264, 576, 1600, 4096, 14336}) {
      for (const std::int64_t height : {1, 5, 32, 300, 5000}) {
        const at::Tensor x = some({1, rows, width});
        const at::Tensor weight = some({height, width});
        const at::Tensor bias = some({height});
        if (rows > 4 || width % wide != 0) {  // torch's
          EXPECT_TRUE(kernels::linear(x, weight, bias).equal(at::linear(x, weight, bias)));
          continue;
        }
        expect_product(kernels::linear(x, weight), x, weight, {});
        expect_product(kernels::linear(x, weight, bias), x, weight, bias);
      }
    }
  }
}

TEST_P(GpuOps, Conv1dGivesWhatTorchsGives) {
  at::manual_seed(10);
  for (const std::int64_t rows : {1, 2, 3, 4, 5, 40}) {
    for (const std::int64_t width : {1, 7, 64, 1600, 6144, 6400, 8192}) {
      for (const std::int64_t columns : {5, 8, 12, 40, 1600, 4800, 17600}) {
        if (columns == 17600 && width > 64) continue;  // so many need no clusters
        const at::Tensor x = some({1, rows, width});
        const at::Tensor weight = some({width, columns});
        const at::Tensor bias = some({columns});
        const at::Tensor residual = some({1, rows, columns});
        const at::Tensor found = conv1d(x, weight, bias);
        EXPECT_TRUE(conv1d(x, weight, bias, residual).equal(residual + found));
        if (rows > 4 || width % wide != 0 || columns % wide != 0) {  // torch's
          EXPECT_TRUE(found.equal(plain_conv1d(x, weight, bias)));
          continue;
        }
        expect_product(found, x, weight.t(), bias);
        EXPECT_TRUE(at::allclose(conv1d(x, weight, bias, {}, Curve::kGeluByTanh),
                                 at::gelu(found, "tanh"), 2 * rounding, 1e-6));
        // The same bits beside others, where every GPU has the memory for all of them at once.
        if (x.nbytes() > 64 << 10) continue;
        EXPECT_TRUE(conv1d(x.narrow(1, 0, 1), weight, bias).equal(found.narrow(1, 0, 1)));
      }
    }
  }
}

TEST_P(GpuOps, LinearRoundsAsSeparateOperatorsDo) {
  at::manual_seed(8);
  for (const std::int64_t rows : {1, 3, 4}) {
    for (const std::int64_t height : {700, 70000}) {  // 70,000: more than a warp has lanes for
      const at::Tensor x = some({1, rows, 1024});
      const at::Tensor weight = some({height, 1024});
      const at::Tensor bias = some({height});
      const at::Tensor product = kernels::linear(x, weight, bias);
      const at::Tensor residual = some({1, rows, height});
      EXPECT_TRUE(kernels::linear(x, weight, bias, residual).equal(residual + product));
      const at::Tensor gate = some({1, rows, height});
      EXPECT_TRUE(gated_linear(x, weight, bias, gate, Curve::kSilu)
                      .equal(plain_gated_linear(x, weight, bias, gate, Curve::kSilu)));
      EXPECT_TRUE(at::allclose(gated_linear(x, weight, bias, gate, Curve::kGeluByTanh),
                               plain_gated_linear(x, weight, bias, gate, Curve::kGeluByTanh),
                               2 * rounding, 1e-6));
    }
  }
}

// Where a product is there before its curve, as of a weight that was fetched: the same bits.
TEST_P(GpuOps, LinearCurvesAsTheCurveDoes) {
  at::manual_seed(13);
  for (const std::int64_t rows : {1, 3, 4, 5, 40}) {
    for (const std::int64_t width : {7, 264, 2560}) {
      const at::Tensor x = some({1, rows, width});
      const LinearWeights layer{some({700, width}), some({700})};
      const at::Tensor product = kernels::linear(x, layer);
      for (const Curve curve : {Curve::kSilu, Curve::kGeluByTanh}) {
        const at::Tensor found = kernels::linear(x, layer, curve);
        EXPECT_TRUE(found.equal(curved(product, curve))) << rows << " x " << width;
        EXPECT_TRUE(at::allclose(found, plain_curved(product, curve), 2 * rounding, 1e-6))
            << rows << " x " << width;
      }
    }
  }
}

TEST_P(GpuOps, LinearGivesTheSameBitsBesideOthers) {
  at::manual_seed(9);
  const at::Tensor weight = some({3000, 2048});
  const at::Tensor other = some({500, 2048});
  const at::Tensor bias = some({3000});
  const at::Tensor x = some({4, 1, 2048});
  const at::Tensor all = kernels::linear(x, weight, bias);
  for (std::int64_t i = 0; i < 4; ++i) {
    const at::Tensor one = x.narrow(0, i, 1);
    EXPECT_TRUE(kernels::linear(one, weight, bias).equal(all.narrow(0, i, 1)));
    const std::vector<LinearWeights> layers{{other, {}}, {weight, bias}, {other, {}}};
    const std::vector<at::Tensor> found = linears(one, layers);
    ASSERT_EQ(found.size(), 3U);
    EXPECT_TRUE(found[1].equal(all.narrow(0, i, 1)));
    EXPECT_TRUE(found[0].equal(kernels::linear(one, other)));
    EXPECT_TRUE(found[2].equal(found[0]));
    const at::Tensor second = some({3000, 2048});
    for (const Curve curve : {Curve::kSilu, Curve::kGeluByTanh}) {
      EXPECT_TRUE(
          gated_pair(one, {weight, bias}, {second, {}}, curve)
              .equal(gated_linear(one, second, {}, kernels::linear(one, weight, bias), curve)));
    }
  }
}

// A norm that is left to a product: the bits of both, one after the other.
TEST_P(GpuOps, LinearNormalisesAsTheNormDoes) {
  at::manual_seed(11);
  for (const std::int64_t rows : {1, 2, 3, 4, 5, 40}) {
    for (const std::int64_t width : {7, 64, 264, 576, 2048, 4096, 5120, 8192, 16384}) {
      const at::Tensor x = 3 * some({1, rows, width}) + 1;
      const LinearWeights first{some({300, width}), some({300})};
      const LinearWeights second{some({300, width}), {}};
      const at::Tensor bias = some({width});
      for (const at::Tensor& centre : {at::Tensor(), bias}) {
        const Operand later(x, {some({width}) / 8, centre, 1e-5});
        const at::Tensor normed = later.value();
        const std::vector<LinearWeights> layers{first, second};
        const std::vector<at::Tensor> found = linears(later, layers);
        ASSERT_EQ(found.size(), 2U);
        EXPECT_TRUE(found[0].equal(kernels::linear(normed, first))) << rows << " x " << width;
        EXPECT_TRUE(found[1].equal(kernels::linear(normed, second))) << rows << " x " << width;
        EXPECT_TRUE(kernels::linear(later, first).equal(found[0])) << rows << " x " << width;
        EXPECT_TRUE(kernels::linear(later, first, Curve::kGeluByTanh)
                        .equal(curved(found[0], Curve::kGeluByTanh)))
            << rows << " x " << width;
        EXPECT_TRUE(gated_pair(later, first, second, Curve::kSilu)
                        .equal(gated_pair(normed, first, second, Curve::kSilu)))
            << rows << " x " << width;
      }
    }
  }
}

TEST_P(GpuOps, Conv1dNormalisesAsTheNormDoes) {
  at::manual_seed(12);
  for (const std::int64_t rows : {1, 2, 3, 4, 5, 40}) {
    for (const std::int64_t width : {7, 64, 768, 1600, 8192}) {
      const Operand later(3 * some({1, rows, width}) + 1, {some({width}), some({width}), 1e-5});
      const LinearWeights layer{some({width, 1000}), some({1000})};
      for (const std::optional<Curve> curve : {std::optional<Curve>(), {Curve::kGeluByTanh}}) {
        EXPECT_TRUE(conv1d(later, layer, curve).equal(conv1d(later.value(), layer, curve)))
            << rows << " x " << width;
      }
    }
  }
}

TEST_P(GpuOps, LinearLeavesOtherDtypesAndGradientsToTorch) {
  const at::Tensor x = some({1, 64}).requires_grad_();
  kernels::linear(x, some({8, 64})).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  const at::Tensor other = kernels::some({1, 64}, at::kHalf);
  const at::Tensor weight = kernels::some({8, 64}, at::kHalf);
  EXPECT_TRUE(kernels::linear(other, weight).equal(at::linear(other, weight)));
}

TEST_P(GpuOps, RmsNormIsTheSameAsOfTorchsOps) {
  for (const std::int64_t width : {1, 3, 64, 576, 4096, 16384}) {
    for (const std::int64_t rows : {1, 5, 300}) {
      const at::Tensor x = 3 * some({2, rows, width});
      const at::Tensor weight = some({width});
      EXPECT_TRUE(at::allclose(rms_norm(x, weight, 1e-6), plain_rms_norm(x, weight, 1e-6),
                               2 * rounding, 1e-6))
          << rows << " x " << width;
    }
  }
  const at::Tensor turned = some({2, 6, 3, 16}).transpose(1, 2);
  const at::Tensor weight = some({16});
  EXPECT_TRUE(at::allclose(rms_norm(turned, weight, 1e-6), plain_rms_norm(turned, weight, 1e-6),
                           2 * rounding, 1e-6));
}

TEST_P(GpuOps, LayerNormIsTheSameAsOfTorchs) {
  for (const std::int64_t width : {1, 3, 64, 1600, 16384}) {
    for (const std::int64_t rows : {1, 5, 300}) {
      const at::Tensor x = 3 * some({2, rows, width}) + 5;
      const at::Tensor weight = some({width});
      const at::Tensor bias = some({width});
      const at::Tensor expected =
          at::layer_norm(exact(x), {width}, exact(weight), exact(bias), 1e-5);
      EXPECT_TRUE(
          at::allclose(exact(layer_norm(x, weight, bias, 1e-5)), expected, 2 * rounding, rounding))
          << rows << " x " << width;
    }
  }
}

TEST_P(GpuOps, AnglesAreWhatTorchFinds) {
  const at::Tensor speeds = at::pow(10000.0, -at::arange(0, 128, 2, at::kFloat) / 128).cuda();
  for (const at::Tensor& positions :
       {at::full({1, 1}, 8191, at::kLong), at::arange(0, 6000).view({3, 2000})}) {
    for (const double factor : {1.0, 1.1386294}) {
      const Angles found = angles(positions.cuda(), speeds, factor, GetParam());
      const Angles torchs = plain_angles(positions.cuda(), speeds, factor, GetParam());
      EXPECT_TRUE(found.cosine.equal(torchs.cosine)) << factor;
      EXPECT_TRUE(found.sine.equal(torchs.sine)) << factor;
    }
  }
}

TEST_P(GpuOps, LikeliestIsWhatTorchFinds) {
  for (const std::int64_t width : {1, 8, 50257, 128256, 1 << 20}) {
    for (const std::int64_t rows : {1, 3, 192}) {
      const at::Tensor scores = some({rows, width});
      EXPECT_TRUE(likeliest(scores).equal(at::argmax(scores, 1))) << rows << " x " << width;
      const at::Tensor few = scores.round();
      EXPECT_TRUE(likeliest(few).equal(at::argmax(few, 1))) << "ties of " << rows << " x " << width;
      const at::Tensor apart = some({rows, 2, width}).select(1, 1);  // rows that lie apart
      EXPECT_TRUE(likeliest(apart).equal(at::argmax(apart, 1))) << rows << " x " << width;
    }
  }
}

TEST_P(GpuOps, KeepPutsTokensWhereTorchsOpsDo) {
  for (const auto& [batch, tokens, heads, size] :
       {std::array<std::int64_t, 4>{2, 3, 25, 64}, {1, 1, 12, 64}, {3, 7, 1, 128}, {2, 2, 5, 80}}) {
    const at::Tensor keys = some({batch, tokens, heads, size}).transpose(1, 2);
    const at::Tensor values = some({batch, tokens, heads, size}).transpose(1, 2);
    const at::Tensor past = at::full({1}, 5, keys.options().dtype(at::kLong));
    const at::Tensor kept_keys = at::zeros({batch, heads, 20, size}, keys.options());
    const at::Tensor kept_values = at::zeros_like(kept_keys);
    keep({keys, values, kept_keys, kept_values, past}, keys);
    at::Tensor expected = at::zeros_like(kept_keys);
    expected.narrow(2, 5, tokens).copy_(keys);
    EXPECT_TRUE(kept_keys.equal(expected)) << keys.sizes();
    expected.narrow(2, 5, tokens).copy_(values);
    EXPECT_TRUE(kept_values.equal(expected)) << keys.sizes();
  }
}

TEST_P(GpuOps, RotateTurnsAndKeepsAsTorchsOpsDo) {
  for (const std::int64_t tokens : {1, 7}) {
    for (const auto& [heads, kv_heads, size, turning] :
         {std::array<std::int64_t, 4>{9, 3, 64, 64}, {8, 8, 128, 128}, {4, 2, 80, 40}}) {
      const at::Tensor queries = some({2, tokens, heads, size}).transpose(1, 2);
      const at::Tensor keys = some({2, tokens, kv_heads, size}).transpose(1, 2);
      const at::Tensor values = some({2, tokens, kv_heads, size}).transpose(1, 2);
      // Of all sequences, or of each.
      const std::int64_t each = size == 128 ? 2 : 1;
      const at::Tensor cosine = some({each, tokens, turning});
      const at::Tensor sine = some({each, tokens, turning});
      for (const bool replayed : {false, true}) {
        at::Tensor room[4];
        for (at::Tensor& one : room) {
          one = at::zeros({2, kv_heads, 20, size}, queries.options());
        }
        const at::Tensor past =
            replayed ? at::full({1}, 5, queries.options().dtype(at::kLong)) : at::Tensor();
        const auto place = [&](const at::Tensor& whole) {
          return replayed ? whole : whole.narrow(2, 5, tokens);
        };
        const at::Tensor places[4] = {place(room[0]), place(room[1]), place(room[2]),
                                      place(room[3])};
        const at::Tensor own =
            rotate_into(queries, {keys, values, places[0], places[1], past}, cosine, sine);
        const at::Tensor plain =
            plain_rotate_into(queries, {keys, values, places[2], places[3], past}, cosine, sine);
        // The plain one rounds both products and their sum.
        EXPECT_TRUE(at::allclose(own, plain, 2 * rounding, 8 * rounding));
        EXPECT_TRUE(at::allclose(room[0], room[2], 2 * rounding, 8 * rounding));
        EXPECT_TRUE(room[1].equal(room[3]));
        EXPECT_EQ(room[0].narrow(2, 0, 5).abs().sum().item<double>(), 0);
      }
    }
  }
}

// Of so many tokens, the last of all.
at::Tensor shown(std::int64_t tokens, std::int64_t total) {
  const auto options = at::TensorOptions().dtype(at::kLong).device(at::kCUDA);
  const at::Tensor looking = at::arange(total - tokens, total, options).unsqueeze(1);
  return (at::arange(total, options) <= looking).view({1, 1, tokens, total});
}

TEST_P(GpuOps, AttendAfterOthersLooksAtWhatAMaskWouldShow) {
  const double near = std::max(rounding, 1e-4);
  for (const auto& [batch, heads, kv_heads, size] :
       {std::array<std::int64_t, 4>{1, 8, 2, 128}, {2, 6, 6, 80}, {1, 4, 1, 20}}) {
    for (const std::int64_t tokens : {2, 5, 65, 512, 513, 1100}) {
      for (const std::int64_t past : {0, 1, 203}) {
        const at::Tensor queries = some({batch, heads, tokens, size});
        const at::Tensor keys = some({batch, kv_heads, past + tokens, size});
        const at::Tensor values = some({batch, kv_heads, past + tokens, size});
        const Looking masked{shown(tokens, past + tokens)};
        const at::Tensor expected =
            plain_attend(exact(queries), exact(keys), exact(values), masked, 0.1);
        for (const Looking& looking : {masked, Looking{{}, true}}) {
          const at::Tensor found = attend(queries, keys, values, looking, 0.1);
          ASSERT_EQ(found.sizes(), expected.sizes());
          EXPECT_TRUE(at::allclose(exact(found), expected, 2 * near, near))
              << tokens << " tokens after " << past << ", " << heads << " heads of " << size << ": "
              << (exact(found) - expected).abs().max().item<double>();
        }
      }
    }
  }
}

// As plans count it. Rows of odd lengths have no copies.
TEST_P(GpuOps, AttendAfterOthersHoldsWhoLooksAtWhomOnce) {
  constexpr std::int64_t kTokens = 2048, kTotal = 7003, kLine = 7008;
  const at::Tensor queries = some({1, 1, kTokens, 8});
  const at::Tensor keys = some({1, 1, kTotal, 8});
  const at::Tensor values = some({1, 1, kTotal, 8});
  const auto held = [&](const Looking& looking) {
    using namespace c10::cuda::CUDACachingAllocator;
    attend(queries, keys, values, looking, 0.1);
    const auto before = getDeviceStats(0).allocated_bytes[0].current;
    resetPeakStats(0);
    attend(queries, keys, values, looking, 0.1);
    return static_cast<double>(getDeviceStats(0).allocated_bytes[0].peak - before);
  };
  const auto number = static_cast<double>(c10::elementSize(type));
  EXPECT_LE(held({{}, true}), 1.05 * number * kTokensThatLookBack * kLine);
  EXPECT_LE(held({shown(kTokens, kTotal)}), 1.05 * number * kTokens * kLine);
}

// As many as there are heads, from steep to nearly none.
at::Tensor slopes_for(std::int64_t heads) {
  return at::pow(2.0, -at::arange(1, heads + 1, at::kFloat) * 8 / heads).cuda();
}

TEST_P(GpuOps, AttendOfOneTokenIsTheSameAsOfTorchsOps) {
  for (const auto& [batch, heads, kv_heads, size] : {std::array<std::int64_t, 4>{1, 32, 8, 128},
                                                     {3, 9, 3, 64},
                                                     {2, 25, 25, 64},
                                                     {1, 16, 1, 256},
                                                     {2, 6, 1, 128},
                                                     {1, 32, 32, 80},
                                                     {2, 4, 2, 96},
                                                     {2, 4, 2, 84}}) {
    for (const std::int64_t tokens : {1, 2, 63, 64, 65, 200, 1000}) {
      const at::Tensor queries = some({batch, 1, heads, size}).transpose(1, 2);
      const at::Tensor keys = some({batch, kv_heads, tokens + 9, size});
      const at::Tensor values = some({batch, kv_heads, tokens + 9, size});
      const at::Tensor seen_keys = keys.narrow(2, 0, tokens);
      const at::Tensor seen_values = values.narrow(2, 0, tokens);
      const double near = size == 84 ? std::max(rounding, 1e-4) : rounding;  // torch's, or ours
      const at::Tensor places = at::arange(tokens, queries.options().dtype(at::kLong));
      for (const at::Tensor& slopes : {at::Tensor(), slopes_for(heads)}) {
        const at::Tensor own =
            attend(queries, seen_keys, seen_values, {{}, false, {}, slopes}, 0.1);
        Looking biased;
        if (slopes.defined()) biased.mask = exact(place_bias(slopes, places.unsqueeze(0), type));
        const at::Tensor expected =
            plain_attend(exact(queries), exact(seen_keys), exact(seen_values), biased, 0.1);
        EXPECT_EQ(own.sizes(), expected.sizes());
        EXPECT_TRUE(at::allclose(exact(own), expected, 2 * near, near))
            << tokens << " tokens, " << heads << " heads of " << size;
        // However much room there is.
        const at::Tensor past = at::full({1}, tokens - 1, places.options());
        const at::Tensor replayed = attend(queries, keys, values, {{}, false, past, slopes}, 0.1);
        if (size == 84) {
          EXPECT_TRUE(at::allclose(replayed, own, 2 * near, near));
        } else {
          EXPECT_TRUE(replayed.equal(own));
        }
      }
    }
  }
}

// In one kernel, to the bits of one after another, whatever the room.
TEST_P(GpuOps, KeepAndAttendIsToTurnToKeepAndToAttend) {
  at::manual_seed(12);
  for (const auto& [batch, heads, kv_heads, size] : {std::array<std::int64_t, 4>{1, 32, 8, 128},
                                                     {3, 9, 3, 64},
                                                     {2, 25, 25, 64},
                                                     {1, 16, 1, 256},
                                                     {2, 6, 1, 128},
                                                     {1, 32, 32, 80},
                                                     {2, 4, 2, 96},
                                                     {2, 4, 2, 84}}) {
    for (const std::int64_t tokens : {1, 2, 63, 64, 65, 200, 250, 510, 1000}) {
      for (const std::int64_t turning : {0L, size / 2, size}) {
        const at::Tensor queries = some({batch, 1, heads, size}).transpose(1, 2);
        const at::Tensor added = some({batch, 1, 2 * kv_heads, size}).transpose(1, 2);
        const at::Tensor new_keys = added.narrow(1, 0, kv_heads);
        const at::Tensor new_values = added.narrow(1, kv_heads, kv_heads);
        Angles angles;
        const std::int64_t each = tokens % 2 == 0 ? batch : 1;  // of each sequence, or of all
        if (turning > 0) angles = {some({each, 1, turning}), some({each, 1, turning})};
        const at::Tensor keys = some({batch, kv_heads, tokens + 9, size});
        const at::Tensor values = some({batch, kv_heads, tokens + 9, size});
        const at::Tensor past = at::full({1}, tokens - 1, queries.options().dtype(at::kLong));
        // With slopes where nothing turns, as models are.
        const at::Tensor slopes = turning == 0 ? slopes_for(heads) : at::Tensor();
        std::vector<at::Tensor> found;
        for (const bool together : {false, true}) {
          for (const bool replayed : {false, true}) {
            const at::Tensor room_keys = keys.clone();
            const at::Tensor room_values = values.clone();
            const at::Tensor seen_keys = replayed ? room_keys : room_keys.narrow(2, 0, tokens);
            const at::Tensor seen_values =
                replayed ? room_values : room_values.narrow(2, 0, tokens);
            const Looking looking{{}, false, replayed ? past : at::Tensor(), slopes};
            const auto way = together ? keep_and_attend : keep_then_attend;
            const at::Tensor out = way(queries, {new_keys, new_values}, angles,
                                       {seen_keys, seen_values}, looking, 0.1);
            if (size == 84 && replayed) continue;  // torch's, by another way
            found.push_back(at::cat({out.flatten(), room_keys.flatten(), room_values.flatten()}));
          }
        }
        for (const at::Tensor& one : found) {
          EXPECT_TRUE(one.equal(found.front()))
              << tokens << " tokens, " << heads << " heads of " << size << ", turning " << turning;
        }
      }
    }
  }
}

TEST_P(GpuOps, ServeWhereTheyShould) {
  const at::Tensor x = some({1, 64});
  EXPECT_TRUE(has_own_ops({&x}));
  const at::Tensor other = x.to(type == at::kFloat ? at::kBFloat16 : at::kFloat);
  EXPECT_FALSE(has_own_ops({&x, &other}));
  const at::Tensor neither = x.to(at::kHalf);
  EXPECT_FALSE(has_own_ops({&neither}));
  const at::Tensor here = x.to(at::kCPU);
  EXPECT_FALSE(has_own_ops({&x, &here}));
}

TEST(GpuTell, TellsTheHost) {
  const auto on_gpu = at::TensorOptions().dtype(at::kLong).device(at::kCUDA);
  for (const std::int64_t count : {1, 70}) {
    at::Tensor past = at::full({1}, 9, on_gpu);
    at::Tensor told = at::zeros({4, count}, at::TensorOptions(at::kLong).pinned_memory(true));
    at::Tensor plain_past = past.clone();
    at::Tensor plain_told = told.clone();
    for (std::int64_t pass = 0; pass < 3; ++pass) {
      const at::Tensor ids = at::arange(count, on_gpu) + 100 * pass;
      tell(ids, past, told);
      plain_tell(ids, plain_past, plain_told);
    }
    EXPECT_TRUE(past.equal(plain_past));  // which waits
    EXPECT_TRUE(told.equal(plain_told));
  }
}

INSTANTIATE_TEST_SUITE_P(All, GpuOps, testing::Values(at::kBFloat16, at::kFloat),
                         [](const auto& each) { return at::toString(each.param); });

}  // namespace
}  // namespace haul::kernels
