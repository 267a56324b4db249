#include "kernels/linear.h"

#include <array>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "kernels/few_rows.h"
#include "kernels/layer_norm.h"
#include "kernels/many_rows.h"
#include "kernels/rms_norm.h"

namespace haul::kernels {
namespace {

struct Case {
  std::int64_t rows;
  std::int64_t width;
  std::int64_t height;
};

// What a sum of `width` products in float32, in any order, may be away from the exact one, and the
// rounding of the result.
at::Tensor tolerance(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& exact) {
  const bool half = x.scalar_type() == at::kHalf;
  const double rounding = x.scalar_type() == at::kFloat ? 0x1p-24 : half ? 0x1p-11 : 0x1p-8;
  const double least = half ? 0x1p-25 : 0;  // below 2^-14 its numbers lie evenly
  const double terms = static_cast<double>(weight.size(1)) + 1;
  const at::Tensor sizes = at::linear(x.to(at::kDouble).abs(), weight.to(at::kDouble).abs());
  return terms * 0x1p-24 * (sizes + exact.abs()) + rounding * exact.abs() + least;
}

void expect_the_same(const Case& item, at::ScalarType type) {
  const at::Tensor x = at::randn({1, item.rows, item.width}).to(type);
  const at::Tensor weight = at::randn({item.height, item.width}).to(type);
  const at::Tensor bias = at::randn({item.height}).to(type);
  for (const bool biased : {false, true}) {
    const at::Tensor added = biased ? bias : at::Tensor();
    const at::Tensor found = kernels::linear(x, weight, added);
    EXPECT_EQ(found.scalar_type(), type);
    EXPECT_EQ(found.sizes().vec(), (std::vector<std::int64_t>{1, item.rows, item.height}));
    if (type != at::kFloat && !are_few_rows(x) && !are_many_rows(x)) {
      // torch's own product, which on some CPUs rounds sums of a part of the row.
      EXPECT_TRUE(found.equal(at::linear(x, weight, biased ? std::optional(bias) : std::nullopt)));
      continue;
    }
    const at::Tensor wide = biased ? bias.to(at::kDouble) : at::Tensor();
    const at::Tensor exact = plain_linear(x.to(at::kDouble), weight.to(at::kDouble), wide, {});
    const at::Tensor away = (found.to(at::kDouble) - exact).abs();
    EXPECT_TRUE((away <= tolerance(x, weight, exact)).all().item<bool>())
        << item.rows << " x " << item.width << " x " << item.height;
  }
}

TEST(Linear, GivesWhatTorchsGives) {
  at::manual_seed(7);
  for (const std::int64_t rows : {1, 2, 3, 4, 5, 40}) {
    for (const std::int64_t width : {1, 3, 4, 7, 16, 33, 576, 1000}) {
      for (const std::int64_t height : {1, 2, 5, 8, 9, 300}) {
        expect_the_same({rows, width, height}, at::kFloat);
        expect_the_same({rows, width, height}, at::kBFloat16);
        expect_the_same({rows, width, height}, at::kHalf);
      }
    }
  }
}

TEST(Linear, OfFewRowsGivesTheSameBitsOverAnyNumberOfThreadsAndBesideOthers) {
  const int before = at::get_num_threads();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor x = at::randn({4, 577}).to(type);
    const at::Tensor weight = at::randn({1001, 577}).to(type);
    at::set_num_threads(1);
    const at::Tensor alone = kernels::linear(x, weight);
    at::set_num_threads(2);
    EXPECT_TRUE(kernels::linear(x, weight).equal(alone));
    at::set_num_threads(before);
    for (std::int64_t row = 0; row < 4; ++row) {
      const at::Tensor one = kernels::linear(x.narrow(0, row, 1), weight);
      EXPECT_TRUE(one.equal(alone.narrow(0, row, 1)));
    }
  }
}

TEST(Linear, AddsAResidualAsASumAfterItWould) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const std::int64_t rows : {1, 3, 9}) {
      const at::Tensor x = at::randn({rows, 1, 70}).to(type);
      const at::Tensor weight = at::randn({300, 70}).to(type);
      const at::Tensor bias = at::randn({300}).to(type);
      const at::Tensor residual = at::randn({rows, 1, 300}).to(type);
      const at::Tensor found = kernels::linear(x, weight, bias, residual);
      EXPECT_EQ(found.sizes(), residual.sizes());
      EXPECT_TRUE(found.equal(residual + kernels::linear(x, weight, bias)));
    }
  }
}

TEST(Linear, GoesThroughACurveAsAfterIt) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const std::int64_t rows : {1, 3, 40}) {
      const at::Tensor x = at::randn({rows, 70}).to(type);
      const LinearWeights layer{at::randn({300, 70}).to(type), at::randn({300}).to(type)};
      for (const Curve curve : {Curve::kSilu, Curve::kGeluByTanh}) {
        EXPECT_TRUE(
            kernels::linear(x, layer, curve).equal(plain_curved(kernels::linear(x, layer), curve)));
      }
    }
  }
}

// A weight that lies the other way round gives what it gives turned.
TEST(Conv1d, GivesWhatALinearLayerGives) {
  at::manual_seed(9);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const std::int64_t rows : {1, 2, 4, 5}) {
      for (const std::int64_t width : {1, 7, 16, 33, 1000}) {
        for (const std::int64_t height : {1, 3, 8, 17, 300, 4101}) {
          const at::Tensor x = at::randn({1, rows, width}).to(type);
          const at::Tensor weight = at::randn({width, height}).to(type);
          const at::Tensor bias = at::randn({height}).to(type);
          const at::Tensor found = kernels::conv1d(x, weight, bias);
          EXPECT_EQ(found.scalar_type(), type);
          EXPECT_EQ(found.sizes().vec(), (std::vector<std::int64_t>{1, rows, height}));
          if (rows > 4 && !are_many_rows(x)) {
            EXPECT_TRUE(found.equal(plain_conv1d(x, weight, bias)));
            continue;
          }
          const at::Tensor turned = weight.t();
          const at::Tensor exact =
              plain_linear(x.to(at::kDouble), turned.to(at::kDouble), bias.to(at::kDouble), {});
          const at::Tensor away = (found.to(at::kDouble) - exact).abs();
          ASSERT_TRUE((away <= tolerance(x, turned, exact)).all().item<bool>())
              << rows << " x " << width << " x " << height;
        }
      }
    }
  }
}

TEST(Conv1d, AddsAResidualOrGoesThroughACurveAsAfterIt) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const std::int64_t rows : {1, 3, 9}) {
      const at::Tensor x = at::randn({rows, 70}).to(type);
      const at::Tensor weight = at::randn({70, 300}).to(type);
      const at::Tensor bias = at::randn({300}).to(type);
      const at::Tensor residual = at::randn({rows, 300}).to(type);
      const at::Tensor alone = kernels::conv1d(x, weight, bias);
      EXPECT_TRUE(kernels::conv1d(x, weight, bias, residual).equal(residual + alone));
      EXPECT_TRUE(kernels::conv1d(x, weight, bias, {}, Curve::kSilu)
                      .equal(plain_curved(alone, Curve::kSilu)));
    }
  }
}

TEST(Conv1d, GivesTheSameBitsOverAnyNumberOfThreadsAndBesideOthers) {
  const int before = at::get_num_threads();
  for (const auto& [type, width] : {std::pair(at::kFloat, 577),
                                    {at::kFloat, 4200},
                                    {at::kBFloat16, 577},
                                    {at::kBFloat16, 4200}}) {
    const at::Tensor x = at::randn({4, width}).to(type);
    const at::Tensor weight = at::randn({width, 1001}).to(type);
    const at::Tensor residual = at::randn({4, 1001}).to(type);
    at::set_num_threads(1);
    const at::Tensor alone = kernels::conv1d(x, weight, {}, residual);
    at::set_num_threads(2);
    EXPECT_TRUE(kernels::conv1d(x, weight, {}, residual).equal(alone));
    EXPECT_TRUE((residual + kernels::conv1d(x, weight, {})).equal(alone));
    at::set_num_threads(before);
    for (std::int64_t row = 0; row < 4; ++row) {
      EXPECT_TRUE(kernels::conv1d(x.narrow(0, row, 1), weight, {}, residual.narrow(0, row, 1))
                      .equal(alone.narrow(0, row, 1)));
    }
  }
}

TEST(GatedLinear, IsTheSameAsOfTorchsOps) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const Curve curve : {Curve::kSilu, Curve::kGeluByTanh}) {
      for (const auto& [rows, height] : {std::pair{1, 1}, {3, 7}, {3, 300}, {9, 300}}) {
        const at::Tensor x = at::randn({1, rows, 70}).to(type);
        const at::Tensor weight = at::randn({height, 70}).to(type);
        const at::Tensor bias = at::randn({height}).to(type);
        const at::Tensor gate = (4 * at::randn({1, rows, height})).to(type);
        const at::Tensor found = gated_linear(x, weight, bias, gate, curve);
        const at::Tensor plain = plain_gated_linear(x, weight, bias, gate, curve);
        EXPECT_EQ(found.scalar_type(), type);
        const double relative = type == at::kFloat ? 1e-5 : 0.02;
        EXPECT_TRUE(at::allclose(found, plain, relative, 4 * relative)) << rows << " x " << height;
      }
    }
  }
}

TEST(GatedLinear, GatesFarAwayAreClosedOrOpen) {
  const at::Tensor x = at::ones({1, 1});
  const at::Tensor weight = at::ones({4, 1});
  const at::Tensor gate = at::tensor({-1e4F, -100.0F, 100.0F, 1e4F}).unsqueeze(0);
  for (const Curve curve : {Curve::kSilu, Curve::kGeluByTanh}) {
    const at::Tensor found = gated_linear(x, weight, {}, gate, curve);
    EXPECT_TRUE(at::allclose(found, plain_gated_linear(x, weight, {}, gate, curve), 1e-6, 1e-30));
  }
}

TEST(Linear, OfManyRowsTakesABiasAndAResidual) {
  const at::Tensor x = at::randn({2, 20, 70});
  const at::Tensor weight = at::randn({30, 70});
  const at::Tensor all[] = {{}, at::randn({30}), at::randn({2, 20, 30})};
  for (const at::Tensor& bias : {all[0], all[1]}) {
    for (const at::Tensor& residual : {all[0], all[2]}) {
      const at::Tensor found = kernels::linear(x, weight, bias, residual);
      EXPECT_TRUE(at::allclose(found, plain_linear(x, weight, bias, residual), 1e-4, 1e-4));
    }
  }
}

// Also on CPUs on which torch does it.
TEST(ManyRows, OfHalfPrecisionAreMultipliedAsFloats) {
  at::manual_seed(11);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const auto& [rows, width, height] : {std::tuple{1, 1, 1},
                                              {5, 7, 3},
                                              {9, 300, 4101},
                                              {40, 20000, 33},
                                              {129, 70, 17},
                                              {300, 513, 1025}}) {
      const at::Tensor x = at::randn({rows, width}).to(type);
      const at::Tensor weight = at::randn({height, width}).to(type);
      const at::Tensor bias = at::randn({height}).to(type);
      for (const at::Tensor& added : {at::Tensor(), bias}) {
        const at::Tensor wide = added.defined() ? added.to(at::kDouble) : added;
        const at::Tensor exact = plain_linear(x.to(at::kDouble), weight.to(at::kDouble), wide);
        for (const Lies lies : {Lies::kByOutput, Lies::kByInput}) {
          const bool by_output = lies == Lies::kByOutput;
          const at::Tensor matrix = by_output ? weight : weight.t().contiguous();
          const at::Tensor found = many_rows(x.unsqueeze(0), matrix, added, lies).squeeze(0);
          EXPECT_EQ(found.scalar_type(), type);
          const at::Tensor away = (found.to(at::kDouble) - exact).abs();
          EXPECT_TRUE((away <= tolerance(x, weight, exact)).all().item<bool>())
              << rows << " x " << width << " x " << height << (by_output ? "" : " by input");
        }
      }
    }
  }
}

TEST(Linear, OfANormThatIsLeftToItIsTheSame) {
  const at::Tensor x = at::randn({1, 3, 70}).to(at::kBFloat16);
  const auto some = [&](at::IntArrayRef sizes) { return at::randn(sizes).to(at::kBFloat16); };
  const std::array<LinearWeights, 2> layers = {
      {{some({30, 70}), some({30})}, {some({30, 70}), {}}}};
  const LinearWeights by_input{some({70, 30}), some({30})};
  const at::Tensor weight = some({70});
  const at::Tensor bias = some({70});
  const at::Tensor rms = rms_norm(x, weight, 1e-5);
  const at::Tensor centred = layer_norm(x, weight, bias, 1e-5);
  for (const auto& [later, normed] :
       {std::pair(Operand(x), x), std::pair(Operand(x, {weight, {}, 1e-5}), rms),
        std::pair(Operand(x, {weight, bias, 1e-5}), centred)}) {
    const at::Tensor first = kernels::linear(normed, layers[0].weight, layers[0].bias);
    EXPECT_TRUE(kernels::linear(later, layers[0]).equal(first));
    const std::vector<at::Tensor> found = linears(later, layers);
    ASSERT_EQ(found.size(), 2U);
    EXPECT_TRUE(found[0].equal(first));
    EXPECT_TRUE(found[1].equal(kernels::linear(normed, layers[1].weight)));
    EXPECT_TRUE(gated_pair(later, layers[0], layers[1], Curve::kSilu)
                    .equal(gated_linear(normed, layers[1].weight, {}, first, Curve::kSilu)));
    EXPECT_TRUE(kernels::conv1d(later, by_input)
                    .equal(kernels::conv1d(normed, by_input.weight, by_input.bias)));
  }
}

TEST(Linear, LeavesGradientsAndOtherDtypesToTorch) {
  const at::Tensor x = at::randn({1, 8});
  const at::Tensor weight = at::randn({8, 8}).requires_grad_();
  kernels::linear(x, weight).sum().backward();
  EXPECT_TRUE(weight.grad().defined());
  const at::Tensor wide = at::randn({1, 8}, at::kDouble);
  EXPECT_EQ(kernels::linear(wide, wide).scalar_type(), at::kDouble);
  const at::Tensor plain = weight.detach();
  EXPECT_EQ(kernels::linear(x, plain, {}, wide).scalar_type(), at::kDouble);
}

}  // namespace
}  // namespace haul::kernels
