#pragma once

// What a tensor takes of the memory that haul gives it: more than its bytes, because it begins at a
// round address, and because a read past the page cache needs room around what is wanted. The
// planner counts with these functions and the tiers allocate by them. Pure, any thread.

#include <algorithm>

#include "haul/bytes.h"

namespace haul {

// At least as the CUDA allocator has it. Weights that lie like this in their file, as in those that
// haul writes, are read straight to their place.
inline constexpr Bytes kTensorAlignment = 512;
// Before and behind a tensor that is read past the page cache.
inline constexpr Bytes kReadSlack = 4096;
// Smaller tensors that stay are copied out of the page cache: the room around them would cost more
// than it saves.
inline constexpr Bytes kDirectSize = kMiB;

constexpr Bytes aligned_memory(Bytes size) {
  return (size + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

// Of a tensor that stays; on a GPU it is aligned alone.
constexpr Bytes resident_memory(Bytes size) {
  return aligned_memory(size) + (size >= kDirectSize ? 2 * kReadSlack : 0);
}

// Of a slot for one that comes and goes; on a GPU it is aligned alone.
constexpr Bytes slot_memory(Bytes size) {
  return aligned_memory(std::max<Bytes>(size, 1)) + 2 * kReadSlack;
}

}  // namespace haul
