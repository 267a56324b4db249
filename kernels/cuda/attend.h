#pragma once

// A token of each sequence looks at all before it and itself: parts of the keys and values at the
// same time, then what they gave together. The parts, and the order in which they are joined, are
// the same however much room the cache has. Sums are float32.

#include <cstddef>
#include <cstdint>

#include <driver_types.h>

#include "kernels/cuda/numbers.h"
#include "kernels/cuda/rotate.h"

namespace haul::kernels::cuda {

constexpr int kPartTokens = 64;

// The token that looks, where its keys and values are still to be kept: turned like its queries,
// and put into the last place of those that are looked at.
struct FreshToken {
  HeadRows<const void> keys, values;  // (B, kv_heads, 1, size); no data: there is no such token
  const void* cosine = nullptr;       // (B or 1, turning)
  const void* sine = nullptr;
  std::int64_t of_batch = 0;  // from one sequence's angles to the next one's
  int turning = 0;
};

struct Attend {
  Numbers numbers = Numbers::kBF16;
  HeadRows<const void> queries;  // (B, heads, 1, size)
  // (B, kv_heads, room, size), whose rows start at multiples of 16 bytes. A fresh token is written
  // there. The others are of earlier passes where there is one.
  HeadRows<void> keys, values;
  FreshToken fresh;
  void* out = nullptr;     // (B, heads, size)
  float* parts = nullptr;  // floats_for_parts()
  // How many tokens there are before the one, if that is to be asked when the kernel runs; without
  // it all of the room is looked at. Not a result of this pass.
  const std::int64_t* past = nullptr;
  int batch = 0, room = 0, size = 0;
  float scale = 1;
  // (heads), or none: a key's place times its head's slope, rounded to one of the numbers, is added
  // to the score. Not a result of this pass.
  const float* slopes = nullptr;
};

bool serves_head_size(std::int64_t size);
// 0 where parts are joined without them.
std::size_t floats_for_parts(const Attend& job);
cudaError_t attend_one(const Attend& job, cudaStream_t stream);

}  // namespace haul::kernels::cuda
