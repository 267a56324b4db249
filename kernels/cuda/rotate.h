#pragma once

// Turns the heads of queries and keys by their tokens' angles and puts keys and values into a
// layer's cache. All numbers are bfloat16.

#include <cstdint>

#include <cuda_bf16.h>
#include <driver_types.h>

namespace haul::kernels::cuda {

// (B, heads, T, D), whose rows of D numbers lie as they are.
template <typename T>
struct HeadRows {
  T* data = nullptr;
  int heads = 0;
  std::int64_t by_batch = 0, by_head = 0, by_token = 0;
};

struct Rotate {
  HeadRows<const __nv_bfloat16> queries, keys, values;
  HeadRows<__nv_bfloat16> turned, kept_keys, kept_values;
  const __nv_bfloat16* cosine = nullptr;  // (B or 1, T, turning)
  const __nv_bfloat16* sine = nullptr;
  std::int64_t of_batch = 0;  // from one sequence's angles to the next one's
  // How many tokens the cache had, if it is to be asked when the kernel runs: the new ones then go
  // so far behind `kept`. Not a result of the kernel just before.
  const std::int64_t* past = nullptr;
  int batch = 0, tokens = 0, size = 0, turning = 0;
};

cudaError_t rotate_into(const Rotate& job, cudaStream_t stream);

}  // namespace haul::kernels::cuda
