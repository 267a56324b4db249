#pragma once

// What a product multiplies: a tensor, or one that is normalised first. Pure.

#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

namespace haul::kernels {

// By rms_norm(), or by layer_norm() where there is a bias.
struct Norm {
  at::Tensor weight;  // (C)
  at::Tensor bias;    // (C), or none
  double epsilon = 0;
};

// A norm that is left to the product, which computes it where that is quicker, to the same bits.
struct Operand {
  Operand(at::Tensor rows) : x(std::move(rows)) {}  // NOLINT: meant to convert
  Operand(at::Tensor rows, Norm by) : x(std::move(rows)), norm(std::move(by)) {}

  at::Tensor value() const;  // normalised

  at::Tensor x;  // (…, C)
  std::optional<Norm> norm;
};

}  // namespace haul::kernels
