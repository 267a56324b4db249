#include "kernels/host_rows.h"

#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

namespace haul::kernels {
namespace {

void multiply(const std::vector<HostRows>& matrices, const at::Tensor& vectors) {
  const HostProducts products(matrices, vectors.const_data_ptr<float>(), vectors.size(0));
  // In any order.
  for (std::size_t piece = products.pieces(); piece-- > 0;) products.multiply(piece);
}

TEST(HostRows, GiveWhatAMatrixProductGives) {
  torch::manual_seed(6);
  for (const c10::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const std::int64_t count : {1, 7, 64, 65, 1000}) {
      for (const std::int64_t width : {1, 16, 33, 512, 5000}) {
        for (const std::int64_t vectors : {1, 2, 3, 4, 5, 8, 31, 32}) {
          const at::Tensor matrix = at::randn({count, width}).to(type);
          const at::Tensor x = at::randn({vectors, width});
          at::Tensor out = at::empty({vectors, count}, matrix.options());
          multiply({{type, matrix.const_data_ptr(), width, count, out.mutable_data_ptr()}}, x);
          const at::Tensor wide = matrix.to(at::kDouble).t();
          const at::Tensor expected = x.to(at::kDouble).matmul(wide);
          // Of each term at most a rounding a sum, and the result's own.
          const double unit = type == at::kFloat ? 0x1p-24 : type == at::kHalf ? 0x1p-11 : 0x1p-8;
          const double least = type == at::kHalf ? 0x1p-25 : 0;  // small ones lie evenly
          const at::Tensor bound = x.to(at::kDouble).abs().matmul(wide.abs()) *
                                       (static_cast<double>(width) * 0x1p-24 + unit) +
                                   least;
          ASSERT_TRUE(((out.to(at::kDouble) - expected).abs() <= bound).all().item<bool>())
              << count << " rows of " << width << ", " << vectors << " vectors";
        }
      }
    }
  }
}

// Also in pieces of another number of rows, and whatever their neighbours are.
TEST(HostRows, OfManyVectorsDoNotDependOnHowMany) {
  torch::manual_seed(8);
  constexpr std::int64_t kWidth = 257;
  for (const c10::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor matrix = at::randn({41, kWidth}).to(type);
    const at::Tensor x = at::randn({32, kWidth});
    const auto products = [&](std::int64_t first, std::int64_t rows, std::int64_t vectors) {
      at::Tensor out = at::empty({vectors, rows}, matrix.options());
      multiply({{type, matrix.narrow(0, first, rows).const_data_ptr(), kWidth, rows,
                 out.mutable_data_ptr()}},
               x.narrow(0, 0, vectors).contiguous());
      return out;
    };
    const at::Tensor all = products(0, 41, 32);
    EXPECT_TRUE(products(0, 41, 7).equal(all.narrow(0, 0, 7)));
    EXPECT_TRUE(products(3, 10, 5).equal(all.narrow(0, 0, 5).narrow(1, 3, 10)));
  }
}

TEST(HostRows, OfSeveralMatricesAreThoseOfEach) {
  torch::manual_seed(7);
  constexpr std::int64_t kWidth = 48;
  const at::Tensor x = at::randn({2, kWidth});
  std::vector<at::Tensor> matrices;
  std::vector<at::Tensor> together;
  std::vector<HostRows> rows;
  for (const std::int64_t count : {100, 0, 1, 32, 33}) {
    const at::Tensor& matrix = matrices.emplace_back(at::randn({count, kWidth}).to(at::kBFloat16));
    at::Tensor& out = together.emplace_back(at::empty({2, count}, matrix.options()));
    rows.push_back({at::kBFloat16, matrix.const_data_ptr(), kWidth, count, out.mutable_data_ptr()});
  }
  multiply(rows, x);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    at::Tensor alone = at::empty_like(together[i]);
    rows[i].out = alone.mutable_data_ptr();
    multiply({rows[i]}, x);
    EXPECT_TRUE(together[i].equal(alone)) << rows[i].count << " rows";
  }
}

TEST(HostRows, KnowFloatsOfUpTo32Bits) {
  EXPECT_TRUE(has_host_rows(at::kFloat));
  EXPECT_TRUE(has_host_rows(at::kBFloat16));
  EXPECT_TRUE(has_host_rows(at::kHalf));
  EXPECT_FALSE(has_host_rows(at::kDouble));
}

}  // namespace
}  // namespace haul::kernels
