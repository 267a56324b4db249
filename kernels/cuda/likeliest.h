#pragma once

// The place of each row's largest number, the first of equal ones; NaN is larger than any, as torch
// has it.

#include <cstdint>

#include <driver_types.h>

#include "kernels/cuda/numbers.h"

namespace haul::kernels::cuda {

struct Likeliest {
  Numbers numbers = Numbers::kBF16;
  const void* scores = nullptr;        // (rows, width), at a multiple of 16 bytes
  unsigned long long* best = nullptr;  // (rows, parts_for(numbers, width)): for what parts found
  std::int64_t* out = nullptr;         // (rows)
  int rows = 0;
  int width = 0;
};

bool serves_scores_of(std::int64_t width);
int parts_for(Numbers numbers, int width);
cudaError_t find_likeliest(const Likeliest& job, cudaStream_t stream);

}  // namespace haul::kernels::cuda
