#pragma once

// A token of each sequence looks at all before it and itself: parts of the keys and values at the
// same time, then what they gave together. The parts are the same however much room the cache has.
// Sums are float32.

#include <cstddef>
#include <cstdint>

#include <driver_types.h>

#include "kernels/cuda/numbers.h"

namespace haul::kernels::cuda {

constexpr int kPartTokens = 64;

struct Attend {
  Numbers numbers = Numbers::kBF16;
  const void* queries = nullptr;  // (B, heads, size)
  // (B, kv_heads, room, size), whose rows of `size` numbers lie as they are.
  const void* keys = nullptr;
  const void* values = nullptr;
  std::int64_t keys_by_batch = 0, keys_by_head = 0, keys_by_token = 0;
  std::int64_t values_by_batch = 0, values_by_head = 0, values_by_token = 0;
  void* out = nullptr;     // (B, heads, size)
  float* parts = nullptr;  // floats_for_parts()
  // How many tokens there are before the one, if that is to be asked when the kernel runs; without
  // it all of the room is looked at. Not a result of the kernel just before.
  const std::int64_t* past = nullptr;
  int batch = 0, heads = 0, kv_heads = 0, room = 0, size = 0;
  float scale = 1;
};

bool serves_head_size(std::int64_t size);
std::size_t floats_for_parts(int batch, int heads, int room, int size);
cudaError_t attend_one(const Attend& job, cudaStream_t stream);

}  // namespace haul::kernels::cuda
