#pragma once

// Numbers through a curve, rounded as products are that go through it.

#include <cstdint>

#include <driver_types.h>

#include "kernels/cuda/numbers.h"
#include "kernels/row_math.h"

namespace haul::kernels::cuda {

struct Curves {
  Numbers numbers = Numbers::kBF16;
  const void* x = nullptr;  // (count)
  void* out = nullptr;      // likewise
  std::int64_t count = 0;
  Curve curve = Curve::kSilu;
};

cudaError_t curve_all(const Curves& job, cudaStream_t stream);

}  // namespace haul::kernels::cuda
