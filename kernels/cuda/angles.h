#pragma once

// The cosines and sines of positions times speeds, each of them twice.

#include <cstdint>

#include <driver_types.h>

namespace haul::kernels::cuda {

template <typename T>  // bfloat16 or float
struct Angles {
  const std::int64_t* positions = nullptr;
  const float* speeds = nullptr;
  T* cosine = nullptr;  // (positions, 2 * speeds)
  T* sine = nullptr;    // likewise
  std::int64_t count = 0;
  int size = 0;      // speeds
  float factor = 1;  // of both, before they are rounded
};

template <typename T>
cudaError_t find_angles(const Angles<T>& job, cudaStream_t stream);

}  // namespace haul::kernels::cuda
