#pragma once

// Norms over rows of bfloat16, in float32 inside.

#include <cstdint>

#include <cuda_bf16.h>
#include <driver_types.h>

namespace haul::kernels::cuda {

// What rows are normalised by. Both start at 16 bytes.
struct NormBy {
  const __nv_bfloat16* weight = nullptr;
  const __nv_bfloat16* bias = nullptr;  // of a layer norm, which subtracts the mean; none: RMS
  float epsilon = 0;
};

struct Norm {
  const __nv_bfloat16* x = nullptr;  // (rows, width)
  NormBy by = {};
  __nv_bfloat16* out = nullptr;
  int rows = 0;
  int width = 0;
};

// Whether rows of this width can be served. They start at 16 bytes.
bool serves_norm_of(std::int64_t width);
cudaError_t normalise_rows(const Norm& job, cudaStream_t stream);

}  // namespace haul::kernels::cuda
