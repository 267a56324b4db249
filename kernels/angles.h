#pragma once

// The angles by which rotary positions turn.

#include <ATen/core/Tensor.h>

namespace haul::kernels {

struct Angles {
  at::Tensor cosine;
  at::Tensor sine;
};

// Of positions (B or 1, T) times speeds (D / 2), each of them twice: (B or 1, T, D), in float32
// and times the factor before they become `dtype`. By the operator haul::angles on GPUs where that
// serves.
Angles angles(const at::Tensor& positions, const at::Tensor& speeds, double factor,
              at::ScalarType dtype);
Angles plain_angles(const at::Tensor& positions, const at::Tensor& speeds, double factor,
                    at::ScalarType dtype);

}  // namespace haul::kernels
