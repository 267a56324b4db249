#include "kernels/rms_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace haul::kernels {
namespace {

TEST(RmsNorm, IsTheSameAsOfTorchsOps) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const std::int64_t width : {1, 3, 8, 65, 576}) {
      for (const std::int64_t rows : {1, 5, 300}) {
        const at::Tensor x = (3 * at::randn({2, rows, width})).to(type);
        const at::Tensor weight = at::randn({width}).to(type);
        const at::Tensor found = rms_norm(x, weight, 1e-6);
        EXPECT_EQ(found.scalar_type(), type);
        const double relative = type == at::kFloat ? 1e-5 : 0x1p-7;
        EXPECT_TRUE(at::allclose(found, plain_rms_norm(x, weight, 1e-6), relative, 1e-6))
            << rows << " x " << width;
      }
    }
  }
}

TEST(RmsNorm, TakesRowsThatDoNotLieOneAfterTheOther) {
  const at::Tensor x = at::randn({2, 6, 3, 16}).transpose(1, 2);
  const at::Tensor weight = at::randn({16});
  EXPECT_TRUE(at::allclose(rms_norm(x, weight, 1e-6), plain_rms_norm(x, weight, 1e-6)));
}

TEST(RmsNorm, OfNothingButZerosIsZeros) {
  const at::Tensor x = at::zeros({1, 9});
  EXPECT_TRUE(rms_norm(x, at::randn({9}), 1e-6).equal(x));
}

TEST(RmsNorm, LeavesGradientsAndOtherDtypesToTorch) {
  const at::Tensor x = at::randn({4, 8}).requires_grad_();
  rms_norm(x, at::randn({8}), 1e-6).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  const at::Tensor wide = at::randn({4, 8}, at::kDouble);
  const at::Tensor weight = at::randn({8}, at::kDouble);
  EXPECT_TRUE(rms_norm(wide, weight, 1e-6).equal(plain_rms_norm(wide, weight, 1e-6)));
  EXPECT_EQ(rms_norm(wide, weight.to(at::kFloat), 1e-6).scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace haul::kernels
