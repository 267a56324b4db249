#pragma once

// Norms over rows of numbers, in float32 inside.

#include <cstdint>

#include <driver_types.h>

#include "kernels/cuda/numbers.h"

namespace haul::kernels::cuda {

// What rows are normalised by. Both start at 16 bytes.
struct NormBy {
  const void* weight = nullptr;
  const void* bias = nullptr;  // of a layer norm, which subtracts the mean; none: RMS
  float epsilon = 0;
};

struct Norm {
  Numbers numbers = Numbers::kBF16;
  const void* x = nullptr;  // (rows, width)
  NormBy by = {};
  void* out = nullptr;
  int rows = 0;
  int width = 0;
};

// Whether rows of this width can be served. They start at 16 bytes.
bool serves_norm_of(Numbers numbers, std::int64_t width);
cudaError_t normalise_rows(const Norm& job, cudaStream_t stream);

}  // namespace haul::kernels::cuda
