#pragma once

// A pass's ids, to the host's memory, and the count of tokens.

#include <cstdint>

#include <driver_types.h>

namespace haul::kernels::cuda {

struct Tell {
  const std::int64_t* ids = nullptr;
  std::int64_t* past = nullptr;  // counted up
  std::int64_t* told = nullptr;  // (slots, count)
  int count = 0, slots = 0;
};

cudaError_t tell(const Tell& job, cudaStream_t stream);

}  // namespace haul::kernels::cuda
