#pragma once

// The cosines and sines of positions times speeds, each of them twice.

#include <cstdint>

#include <driver_types.h>

#include "kernels/cuda/numbers.h"

namespace haul::kernels::cuda {

struct Angles {
  Numbers numbers = Numbers::kBF16;
  const std::int64_t* positions = nullptr;
  const float* speeds = nullptr;
  void* cosine = nullptr;  // (positions, 2 * speeds)
  void* sine = nullptr;    // likewise
  std::int64_t count = 0;  // positions
  int size = 0;            // speeds
  float factor = 1;        // of both, before they are rounded
};

cudaError_t find_angles(const Angles& job, cudaStream_t stream);

}  // namespace haul::kernels::cuda
