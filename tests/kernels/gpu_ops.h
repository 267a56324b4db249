#pragma once

// What the tests of operators on GPUs share.

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

namespace haul::kernels {

inline at::Tensor exact(const at::Tensor& x) {
  return x.defined() ? x.to(at::kDouble) : x;
}

// The same, one number behind an address at which an access of 16 bytes may begin.
inline at::Tensor off(const at::Tensor& x) {
  const at::Tensor room = at::empty({x.numel() + 1}, x.options());
  return room.narrow(0, 1, x.numel()).view(x.sizes()).copy_(x);
}

class OnGpu : public testing::TestWithParam<at::ScalarType> {
 protected:
  at::Tensor some(at::IntArrayRef sizes) const {
    return at::randn(sizes, at::TensorOptions().dtype(type).device(at::kCUDA));
  }

  const at::ScalarType type = GetParam();
  // Of a BF16; of a half, in which torch may compute; of sums in float32.
  const double rounding = type == at::kFloat ? 0x1p-18 : type == at::kHalf ? 0x1p-10 : 0x1p-8;
};

}  // namespace haul::kernels
