#pragma once

// What the tests share of the kernels for GPUs, compiled for the CPU.

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "kernels/cuda/numbers.h"
#include "kernels/cuda/rotate.h"
#include "kernels/linear.h"

namespace haul::kernels {

inline const void* data(const at::Tensor& x) {
  return x.const_data_ptr();
}
inline void* data_of(at::Tensor& x) {
  return x.mutable_data_ptr();
}

inline cuda::HeadRows<const void> rows(const at::Tensor& x) {
  return {data(x), static_cast<int>(x.size(1)), x.stride(0), x.stride(1), x.stride(2)};
}
inline cuda::HeadRows<void> rows_of(at::Tensor& x) {
  return {data_of(x), static_cast<int>(x.size(1)), x.stride(0), x.stride(1), x.stride(2)};
}

inline at::Tensor exact(const at::Tensor& x) {
  return x.defined() ? x.to(at::kDouble) : x;
}
inline at::Tensor exact_linear(const at::Tensor& x, const at::Tensor& weight,
                               const at::Tensor& bias) {
  return plain_linear(exact(x), exact(weight), exact(bias));
}

inline cuda::Numbers numbers_of(at::ScalarType type) {
  if (type == at::kFloat) return cuda::Numbers::kF32;
  return type == at::kHalf ? cuda::Numbers::kF16 : cuda::Numbers::kBF16;
}

class CudaKernels : public testing::TestWithParam<at::ScalarType> {
 protected:
  at::Tensor some(at::IntArrayRef sizes) const { return at::randn(sizes).to(type); }
  bool is_near(const at::Tensor& found, const at::Tensor& expected, double more = 1) const {
    return at::allclose(exact(found), exact(expected), 2 * rounding, more * rounding);
  }

  const at::ScalarType type = GetParam();
  const cuda::Numbers numbers = numbers_of(type);
  // Of a BF16; of a half; of sums in float32.
  const double rounding = type == at::kFloat ? 0x1p-19 : type == at::kHalf ? 0x1p-10 : 0x1p-8;
  // Numbers of a 16-byte access.
  const std::int64_t wide = 16 / static_cast<std::int64_t>(c10::elementSize(type));
};

}  // namespace haul::kernels
