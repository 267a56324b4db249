// haul's kernels on a GPU, each against its plain twin.

#include "tests/kernels/gpu_ops.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "kernels/angles.h"
#include "kernels/layer_norm.h"
#include "kernels/likeliest.h"
#include "kernels/linear.h"
#include "kernels/own_ops.h"
#include "kernels/rms_norm.h"
#include "kernels/rotate.h"
#include "kernels/tell.h"

namespace haul::kernels {
namespace {

class GpuOps : public OnGpu {
 protected:
  // What should come out, and how far away from it what does may be.
  struct Expected {
    at::Tensor value, most;
  };

  // Of a sum of products in float32, in any order.
  Expected exact_product(const at::Tensor& x, const at::Tensor& weight,
                         const at::Tensor& bias) const {
    const at::Tensor value = plain_linear(exact(x), exact(weight), exact(bias));
    const at::Tensor sizes = at::linear(exact(x).abs(), exact(weight).abs());
    const double terms = static_cast<double>(weight.size(1)) + 1;
    return {value, terms * 0x1p-24 * (sizes + value.abs()) + last_place * value.abs() + least};
  }
  // Of two of them, the first through a curve, each rounded, and so is what they give.
  Expected exact_pair(const at::Tensor& x, const LinearWeights& gate, const LinearWeights& layer,
                      Curve curve) const {
    const Expected before = exact_product(x, gate.weight, gate.bias);
    const Expected all = exact_product(x, layer.weight, layer.bias);
    const at::Tensor open = plain_curved(before.value, curve);
    const at::Tensor value = open * all.value;
    // No curve is steeper than 1.13.
    const at::Tensor away =
        1.2 * before.most + 0x1p-20 * before.value.abs() + last_place * open.abs() + least;
    return {value, 1.01 * ((all.value.abs() + all.most) * away + open.abs() * all.most) +
                       last_place * value.abs() + least};
  }

  void expect_near(const at::Tensor& found, const Expected& expected, const at::Tensor& x,
                   const at::Tensor& weight) const {
    EXPECT_EQ(found.scalar_type(), x.scalar_type());
    EXPECT_EQ(found.sizes(), expected.value.sizes());
    EXPECT_TRUE(((exact(found) - expected.value).abs() <= expected.most).all().item<bool>())
        << x.sizes() << " by " << weight.sizes();
  }

  // Whether a kernel multiplies them; else torch does.
  bool has_kernel(const at::Tensor& x, const at::Tensor& weight) const {
    const auto place = reinterpret_cast<std::uintptr_t>(weight.const_data_ptr());
    return x.numel() <= 4 * x.size(-1) && x.size(-1) % wide == 0 && weight.size(1) % wide == 0 &&
           place % 16 == 0;
  }
  void expect_linear(const at::Tensor& found, const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias) const {
    if (has_kernel(x, weight)) {
      expect_near(found, exact_product(x, weight, bias), x, weight);
    } else {
      EXPECT_TRUE(found.equal(at::linear(x, weight, bias))) << x.sizes() << weight.sizes();
    }
  }
  void expect_conv1d(const at::Tensor& found, const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias) const {
    if (has_kernel(x, weight)) {
      expect_near(found, exact_product(x, weight.t(), bias), x, weight);
    } else {
      EXPECT_TRUE(found.equal(plain_conv1d(x, weight, bias))) << x.sizes() << weight.sizes();
    }
  }
  void expect_pair(const at::Tensor& x, const LinearWeights& gate, const LinearWeights& layer,
                   Curve curve) const {
    const at::Tensor found = gated_pair(x, gate, layer, curve);
    if (has_kernel(x, gate.weight) && has_kernel(x, layer.weight)) {
      expect_near(found, exact_pair(x, gate, layer, curve), x, layer.weight);
      return;
    }
    const at::Tensor plain = plain_curved(at::linear(x, gate.weight, gate.bias), curve) *
                             at::linear(x, layer.weight, layer.bias);
    EXPECT_TRUE(at::allclose(found, plain, 4 * rounding, 1e-6))
        << x.sizes() << " by " << layer.weight.sizes();
  }

  // Of a number, and of the small ones that have fewer places.
  const double last_place = type == at::kFloat ? 0x1p-23 : type == at::kHalf ? 0x1p-10 : 0x1p-8;
  const double least = type == at::kHalf ? 0x1p-24 : 0;
  // Numbers of a 16-byte access.
  const std::int64_t wide = 16 / static_cast<std::int64_t>(c10::elementSize(type));
};

class GpuKernels : public GpuOps {};  // what torch does not promise

// Of a weight that no kernel takes; of rows of one tile; of several; and of more rows a warp than
// its lanes end before they ask again for what follows a product.
struct Sizes {
  std::int64_t width, height;
};
constexpr std::array<Sizes, 4> kWeights = {{{7, 300}, {264, 700}, {2056, 2500}, {64, 70000}}};

TEST_P(GpuOps, LinearGivesWhatTorchsGives) {
  at::manual_seed(7);
  for (const std::int64_t rows : {1, 2, 3, 4, 5, 40}) {
    for (const std::int64_t width : {1, 7, 8, 12, 16, 264, 576, 1600, 4096, 14336}) {
      for (const std::int64_t height : {1, 5, 32, 300, 5000}) {
        const at::Tensor x = some({1, rows, width});
        const at::Tensor weight = some({height, width});
        const at::Tensor bias = some({height});
        expect_linear(kernels::linear(x, weight), x, weight, {});
        expect_linear(kernels::linear(x, weight, bias), x, weight, bias);
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
        expect_conv1d(found, x, weight, bias);
        expect_conv1d(kernels::conv1d(x, weight, {}), x, weight, {});
        if (!has_kernel(x, weight)) continue;
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
  for (const std::int64_t rows : {1, 2, 3, 4, 5}) {
    for (const auto& [width, height] : kWeights) {
      const at::Tensor x = some({1, rows, width});
      const at::Tensor weight = some({height, width});
      const at::Tensor bias = some({height});
      const at::Tensor product = kernels::linear(x, weight, bias);
      expect_linear(product, x, weight, bias);
      const at::Tensor residual = some({1, rows, height});
      EXPECT_TRUE(kernels::linear(x, weight, bias, residual).equal(residual + product))
          << rows << " x " << width;
      const at::Tensor gate = some({1, rows, height});
      EXPECT_TRUE(gated_linear(x, weight, bias, gate, Curve::kSilu)
                      .equal(plain_curved(gate, Curve::kSilu) * product))
          << rows << " x " << width;
      EXPECT_TRUE(at::allclose(gated_linear(x, weight, bias, gate, Curve::kGeluByTanh),
                               plain_curved(gate, Curve::kGeluByTanh) * product, 2 * rounding,
                               1e-6))
          << rows << " x " << width;
    }
  }
}

TEST_P(GpuOps, LinearsGiveForEachOfThreeWhatTorchsGives) {
  at::manual_seed(14);
  for (const std::int64_t rows : {1, 2, 3, 4, 5, 40}) {
    for (const auto& [width, height] : kWeights) {
      const at::Tensor x = some({1, rows, width});
      const std::int64_t fewer = height / 7;
      const std::vector<LinearWeights> layers{{some({height, width}), some({height})},
                                              {some({fewer, width}), {}},
                                              {some({fewer + 1, width}), some({fewer + 1})}};
      const std::vector<at::Tensor> found = linears(x, layers);
      ASSERT_EQ(found.size(), layers.size());
      for (std::size_t i = 0; i < layers.size(); ++i) {
        expect_linear(found[i], x, layers[i].weight, layers[i].bias);
      }
    }
  }
}

TEST_P(GpuOps, GatedPairGivesWhatTorchsOpsGive) {
  at::manual_seed(16);
  for (const std::int64_t rows : {1, 2, 3, 4, 5, 40}) {
    for (const auto& [width, height] : kWeights) {
      const at::Tensor x = some({1, rows, width}) / std::sqrt(width);
      const LinearWeights biased{some({height, width}), some({height})};
      const LinearWeights other{some({height, width}), {}};
      for (const Curve curve : {Curve::kSilu, Curve::kGeluByTanh}) {
        expect_pair(x, biased, other, curve);
        expect_pair(x, other, biased, curve);
      }
    }
  }
}

// Where a product is there before its curve, as of a weight that was fetched: the same bits.
TEST_P(GpuOps, LinearCurvesAsTheCurveDoes) {
  at::manual_seed(13);
  for (const std::int64_t rows : {1, 2, 3, 4, 5, 40}) {
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

TEST_P(GpuKernels, LinearGivesTheSameBitsBesideOthers) {
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

TEST_P(GpuOps, LinearLeavesGradientsToTorch) {
  const at::Tensor x = some({1, 64}).requires_grad_();
  kernels::linear(x, some({8, 64})).sum().backward();
  EXPECT_TRUE(x.grad().defined());
}

// Kernels that cannot read them there leave them to torch.
TEST_P(GpuOps, ProductsAndNormsTakeNumbersFromAnyAddress) {
  at::manual_seed(17);
  const LinearWeights layer{some({304, 264}), {}};
  const LinearWeights by_input{some({264, 304}), {}};
  const at::Tensor by = some({264});
  const at::Tensor centre = some({264});
  for (const std::int64_t rows : {1, 4, 5}) {
    const at::Tensor x = some({1, rows, 264});
    const at::Tensor elsewhere = off(x);
    expect_linear(kernels::linear(elsewhere, layer), elsewhere, layer.weight, {});
    expect_conv1d(conv1d(elsewhere, by_input), elsewhere, by_input.weight, {});
    expect_pair(elsewhere, layer, layer, Curve::kSilu);
    const at::Tensor weight = off(layer.weight);
    expect_linear(kernels::linear(x, weight), x, weight, {});
    expect_linear(linears(x, std::vector<LinearWeights>{layer, {weight, {}}})[1], x, weight, {});
    expect_pair(x, {weight, {}}, layer, Curve::kSilu);
    expect_pair(x, layer, {weight, {}}, Curve::kSilu);
    const at::Tensor turned = off(by_input.weight);
    expect_conv1d(kernels::conv1d(x, turned, {}), x, turned, {});
    for (const auto& [from, norm] : {std::pair(elsewhere, by), std::pair(x, off(by))}) {
      const at::Tensor rms = plain_rms_norm(from, norm, 1e-5);
      EXPECT_TRUE(rms_norm(from, norm, 1e-5).equal(rms)) << rows;
      expect_linear(kernels::linear(Operand(from, {norm, {}, 1e-5}), layer), rms, layer.weight, {});
      const at::Tensor centred = at::layer_norm(from, {264}, norm, centre, 1e-5);
      EXPECT_TRUE(layer_norm(from, norm, centre, 1e-5).equal(centred)) << rows;
      expect_conv1d(conv1d(Operand(from, {norm, centre, 1e-5}), by_input), centred, by_input.weight,
                    {});
    }
  }
}

TEST_P(GpuKernels, TakeWhatFollowsAProductFromAnyAddress) {
  at::manual_seed(18);
  const at::Tensor weight = some({304, 264});
  const at::Tensor by_input = some({264, 304});
  const at::Tensor bias = some({304});
  for (const std::int64_t rows : {1, 4}) {
    const at::Tensor x = some({1, rows, 264});
    const at::Tensor other = some({1, rows, 304});
    EXPECT_TRUE(kernels::linear(x, weight, off(bias), off(other))
                    .equal(kernels::linear(x, weight, bias, other)));
    EXPECT_TRUE(conv1d(x, by_input, off(bias), off(other)).equal(conv1d(x, by_input, bias, other)));
    EXPECT_TRUE(gated_linear(x, weight, off(bias), off(other), Curve::kSilu)
                    .equal(gated_linear(x, weight, bias, other, Curve::kSilu)));
    EXPECT_TRUE(curved(off(other), Curve::kSilu).equal(curved(other, Curve::kSilu)));
  }
}

TEST_P(GpuOps, RmsNormIsTheSameAsOfTorchsOps) {
  for (const std::int64_t width : {1, 3, 64, 576, 4096, 5120, 8192, 16384}) {
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
  for (const std::int64_t width : {1, 3, 64, 1600, 5120, 8192, 16384}) {
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
  // As many as a grid has of blocks side by side, and one more.
  for (const std::int64_t rows : {65535, 65536}) {
    const at::Tensor scores = some({rows, 8});
    EXPECT_TRUE(likeliest(scores).equal(at::argmax(scores, 1))) << rows;
  }
  const at::Tensor elsewhere = off(some({3, 50256}));
  EXPECT_TRUE(likeliest(elsewhere).equal(at::argmax(elsewhere, 1)));
}

// Numbers of few values, so that many are equal, and those that are no numbers.
TEST_P(GpuOps, LikeliestOfOddNumbersIsWhatTorchFindsOnTheCpu) {
  at::manual_seed(19);
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::int64_t width : {8, 2051, 6004, 50257}) {
    const at::Tensor few = at::randint(-3, 3, {3, width}).to(type);
    at::Tensor zeros = at::full({3, width}, -0.0, few.options());
    zeros[1][width - 1] = 0.0;
    at::Tensor infinite = few.clone();
    infinite[0][width / 2] = infinity;
    infinite[1].fill_(-infinity);
    infinite[2].fill_(-infinity);
    infinite[2][width - 1] = -1e4;
    at::Tensor odd = few.clone();
    odd[0][0] = infinity;
    odd[0][width - 1] = nan;
    odd[1][width - 1] = nan;
    odd[1][width - 3] = -nan;
    odd[2].fill_(nan);
    for (const at::Tensor& scores : {few, few - 10, zeros, infinite, odd}) {
      EXPECT_TRUE(likeliest(scores.cuda()).cpu().equal(at::argmax(scores, 1)))
          << width << ": " << at::argmax(scores, 1);
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

TEST_P(GpuKernels, ServeWhereTheyShould) {
  const at::Tensor x = some({1, 64});
  EXPECT_TRUE(has_own_ops({&x}));
  const at::Tensor other = x.to(type == at::kFloat ? at::kBFloat16 : at::kFloat);
  EXPECT_FALSE(has_own_ops({&x, &other}));
  const at::Tensor neither = x.to(at::kDouble);
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
    for (std::int64_t pass = 0; pass < 5; ++pass) {  // behind the last slot is the first
      const at::Tensor ids = at::arange(count, on_gpu) + 100 * pass;
      tell(ids, past, told);
      plain_tell(ids, plain_past, plain_told);
    }
    EXPECT_TRUE(past.equal(plain_past));  // which waits
    EXPECT_TRUE(told.equal(plain_told));
  }
}

INSTANTIATE_TEST_SUITE_P(All, GpuOps, testing::Values(at::kBFloat16, at::kFloat, at::kHalf),
                         [](const auto& each) { return at::toString(each.param); });
INSTANTIATE_TEST_SUITE_P(All, GpuKernels, testing::Values(at::kBFloat16, at::kFloat, at::kHalf),
                         [](const auto& each) { return at::toString(each.param); });

}  // namespace
}  // namespace haul::kernels
