#pragma once

// The curves that products go through, in the forms that torch's kernels have.

#include "kernels/cuda/numbers.cuh"
#include "kernels/row_math.h"

namespace haul::kernels::cuda {

// Rounded to a T.
template <typename T>
__device__ inline float curved(float value, Curve curve) {
  if (curve == Curve::kSilu) return rounded<T>(value / (1.0F + expf(-value)));
  constexpr float kBeta = 0.7978845608028654F;
  constexpr float kKappa = 0.044715F;
  const float inner = kBeta * (value + kKappa * (value * value * value));
  return rounded<T>(0.5F * value * (1.0F + tanhf(inner)));
}

}  // namespace haul::kernels::cuda
