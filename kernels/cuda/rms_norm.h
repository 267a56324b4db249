#pragma once

// A norm without mean, over rows of bfloat16, in float32 inside.

#include <cstdint>

#include <cuda_bf16.h>
#include <driver_types.h>

namespace haul::kernels::cuda {

struct RmsNorm {
  const __nv_bfloat16* x = nullptr;  // (rows, width)
  const __nv_bfloat16* weight = nullptr;
  __nv_bfloat16* out = nullptr;
  int rows = 0;
  int width = 0;
  float epsilon = 0;
};

// Whether rows of this width can be served. They start at 8 bytes.
bool serves_norm_of(std::int64_t width);
cudaError_t normalise_rows(const RmsNorm& job, cudaStream_t stream);

}  // namespace haul::kernels::cuda
