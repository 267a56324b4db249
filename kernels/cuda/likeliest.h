#pragma once

// The place of each row's largest number, the first of equal ones; NaN is larger than any, as torch
// has it. Numbers are bfloat16.

#include <cstdint>

#include <cuda_bf16.h>
#include <driver_types.h>

namespace haul::kernels::cuda {

struct Likeliest {
  const __nv_bfloat16* scores = nullptr;  // (rows, width), at a multiple of 16 bytes
  unsigned long long* best = nullptr;     // (rows, parts_for(width)): room for what parts found
  std::int64_t* out = nullptr;            // (rows)
  int rows = 0;
  int width = 0;
};

bool serves_scores_of(std::int64_t width);
int parts_for(int width);
cudaError_t find_likeliest(const Likeliest& job, cudaStream_t stream);

}  // namespace haul::kernels::cuda
