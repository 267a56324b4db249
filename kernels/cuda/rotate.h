#pragma once

// Turns the heads of queries and keys by their tokens' angles and puts keys and values into a
// layer's cache.

#include <cstdint>

#include <driver_types.h>

#include "kernels/cuda/numbers.h"

namespace haul::kernels::cuda {

// (B, heads, T, D), whose rows of D numbers lie as they are.
template <typename Data>
struct HeadRows {
  Data* data = nullptr;
  int heads = 0;
  std::int64_t by_batch = 0, by_head = 0, by_token = 0;
};

struct Rotate {
  Numbers numbers = Numbers::kBF16;
  HeadRows<const void> queries, keys, values;
  HeadRows<void> turned, kept_keys, kept_values;
  const void* cosine = nullptr;  // (B or 1, T, turning)
  const void* sine = nullptr;
  std::int64_t of_batch = 0;  // from one sequence's angles to the next one's
  // How many tokens the cache had, if it is to be asked when the kernel runs: the new ones then go
  // so far behind `kept`. Not a result of this pass.
  const std::int64_t* past = nullptr;
  int batch = 0, tokens = 0, size = 0, turning = 0;
};

cudaError_t rotate_into(const Rotate& job, cudaStream_t stream);

}  // namespace haul::kernels::cuda
