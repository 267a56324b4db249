#include "kernels/host_rows.h"

#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

namespace haul::kernels {
namespace {

TEST(HostRows, GiveWhatAMatrixProductGives) {
  torch::manual_seed(6);
  for (const c10::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t count : {1, 7, 64, 65, 1000}) {
      for (const std::int64_t width : {1, 16, 33, 512}) {
        for (std::int64_t vectors = 1; vectors <= 4; ++vectors) {
          const at::Tensor matrix = at::randn({count, width}).to(type);
          const at::Tensor x = at::randn({vectors, width});
          at::Tensor out = at::empty({vectors, count}, matrix.options());
          multiply_host_rows({type, matrix.const_data_ptr(), width, count},
                             x.const_data_ptr<float>(), vectors, out.mutable_data_ptr());
          const at::Tensor wide = matrix.to(at::kDouble).t();
          const at::Tensor expected = x.to(at::kDouble).matmul(wide);
          // Of each term at most a rounding a sum, and the result's own.
          const double unit = type == at::kFloat ? 0x1p-24 : 0x1p-8;
          const at::Tensor bound = x.to(at::kDouble).abs().matmul(wide.abs()) *
                                   (static_cast<double>(width) * 0x1p-24 + unit);
          ASSERT_TRUE(((out.to(at::kDouble) - expected).abs() <= bound).all().item<bool>())
              << count << " rows of " << width << ", " << vectors << " vectors";
        }
      }
    }
  }
}

TEST(HostRows, KnowFloatsAndHalvesWithAWideExponent) {
  EXPECT_TRUE(has_host_rows(at::kFloat));
  EXPECT_TRUE(has_host_rows(at::kBFloat16));
  EXPECT_FALSE(has_host_rows(at::kHalf));
}

}  // namespace
}  // namespace haul::kernels
