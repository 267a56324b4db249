#include "kernels/few_rows.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

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
  const double rounding = x.scalar_type() == at::kFloat ? 0x1p-24 : 0x1p-8;
  const double terms = static_cast<double>(weight.size(1)) + 1;
  const at::Tensor sizes = at::linear(x.to(at::kDouble).abs(), weight.to(at::kDouble).abs());
  return terms * 0x1p-24 * (sizes + exact.abs()) + rounding * exact.abs();
}

void expect_the_same(const Case& item, at::ScalarType type) {
  const at::Tensor x = at::randn({1, item.rows, item.width}).to(type);
  const at::Tensor weight = at::randn({item.height, item.width}).to(type);
  const at::Tensor bias = at::randn({item.height}).to(type);
  ASSERT_TRUE(has_few_rows(x, weight));
  for (const bool biased : {false, true}) {
    const std::optional<at::Tensor> added = biased ? std::optional(bias) : std::nullopt;
    const at::Tensor found = linear_of_few_rows(x, weight, added);
    EXPECT_EQ(found.scalar_type(), type);
    EXPECT_EQ(found.sizes().vec(), (std::vector<std::int64_t>{1, item.rows, item.height}));
    std::optional<at::Tensor> wide;
    if (biased) wide = bias.to(at::kDouble);
    const at::Tensor exact = at::linear(x.to(at::kDouble), weight.to(at::kDouble), wide);
    const at::Tensor away = (found.to(at::kDouble) - exact).abs();
    EXPECT_TRUE((away <= tolerance(x, weight, exact)).all().item<bool>())
        << item.rows << " x " << item.width << " x " << item.height;
  }
}

TEST(FewRows, GiveWhatALinearLayerGives) {
  at::manual_seed(7);
  for (const std::int64_t rows : {1, 2, 3, 4}) {
    for (const std::int64_t width : {1, 3, 4, 7, 16, 33, 576, 1000}) {
      for (const std::int64_t height : {1, 2, 5, 8, 9, 300}) {
        expect_the_same({rows, width, height}, at::kFloat);
        expect_the_same({rows, width, height}, at::kBFloat16);
      }
    }
  }
}

TEST(FewRows, AreTheSameBitsOverAnyNumberOfThreadsAndBesideOthers) {
  const at::Tensor x = at::randn({4, 577});
  const at::Tensor weight = at::randn({1001, 577});
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor alone = linear_of_few_rows(x, weight, std::nullopt);
  at::set_num_threads(2);
  EXPECT_TRUE(linear_of_few_rows(x, weight, std::nullopt).equal(alone));
  at::set_num_threads(before);
  for (std::int64_t row = 0; row < 4; ++row) {
    const at::Tensor one = linear_of_few_rows(x.narrow(0, row, 1), weight, std::nullopt);
    EXPECT_TRUE(one.equal(alone.narrow(0, row, 1)));
  }
}

TEST(FewRows, LeaveTheRestToTorch) {
  const at::Tensor weight = at::randn({8, 8});
  EXPECT_TRUE(has_few_rows(at::randn({2, 2, 8}), weight));
  EXPECT_FALSE(has_few_rows(at::randn({5, 8}), weight));
  EXPECT_FALSE(has_few_rows(at::randn({0, 8}), weight));
  EXPECT_FALSE(has_few_rows(at::randn({1, 8}, at::kDouble), weight.to(at::kDouble)));
  EXPECT_FALSE(has_few_rows(at::randn({1, 8}, at::kBFloat16), weight));
  EXPECT_FALSE(has_few_rows(at::randn({1, 8}), weight.detach().clone().requires_grad_()));
}

}  // namespace
}  // namespace haul::kernels
