#pragma once

// The norm of rows, for every kernel that needs one: summed in one order and rounded in one way, so
// that a product which normalises its vectors gives the bits of a norm and then a product.

#include <cstddef>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/numbers.cuh"

namespace haul::kernels::cuda {

// A block has so many threads, or as many as a row has chunks of 16 bytes: either way a chunk
// goes to the same thread, and those without one add zeros.
constexpr int kNormThreads = 512;
constexpr int kNormWarps = kNormThreads / kLanes;

// The shared memory that a norm of so many rows takes beside them: the weight, the bias where there
// is one, and sums of warps. None without a weight.
template <typename T>
__host__ __device__ std::size_t bytes_for_norm(const NormBy& by, std::size_t width, int rows) {
  if (by.weight == nullptr) return 0;
  return width * sizeof(T) * (by.bias == nullptr ? 1 : 2) +
         2 * kNormWarps * sizeof(float) * static_cast<std::size_t>(rows);
}

template <typename Run>
__device__ inline void for_own_chunks(int chunks, const Run& run) {
#pragma unroll 1  // most rows have one for a thread
  for (int i = static_cast<int>(threadIdx.x); i < chunks; i += kNormThreads) run(i);
}

// Begins to bring the weight and the bias to `memory`, before the rows are there.
__device__ inline void fetch_norm(const NormBy& by, int chunks, uint4* memory) {
  for_own_chunks(chunks, [&](int i) {
    copy_ahead(memory + i, static_cast<const uint4*>(by.weight) + i);
    if (by.bias == nullptr) return;
    copy_ahead(memory + chunks + i, static_cast<const uint4*>(by.bias) + i);
  });
  end_copies();
}

// Sums over all threads of a block, in each of them.
template <int kRows>
__device__ inline void sum_over_block(float (&values)[kRows], float* of_warps) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    values[r] = sum_of_lanes(values[r]);
    if (lane == 0) of_warps[r * kNormWarps + warp] = values[r];
  }
  __syncthreads();
  const int other = lane % kNormWarps;
  const bool runs = other < static_cast<int>(blockDim.x) / kLanes;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    values[r] = sum_of_lanes(runs ? of_warps[r * kNormWarps + other] : 0.0F, kNormWarps);
  }
}

// Puts rows of x (kRows, chunks) into shared memory, as they are, and begins to sum them.
template <typename T, int kRows>
__device__ inline void take_rows(const NormBy& by, const uint4* x, int chunks, uint4* rows,
                                 float (&sums)[kRows]) {
  const bool centred = by.bias != nullptr;
  for_own_chunks(chunks, [&](int i) {
    uint4 packed[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) packed[r] = fresh(x + r * chunks + i);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      rows[r * chunks + i] = packed[r];
      float values[kWide<T>];
      unpack<T>(packed[r], values);
      for (const float value : values) sums[r] = fmaf(value, centred ? 1.0F : value, sums[r]);
    }
  });
}

// Normalises what take_rows() took. `memory` is what fetch_norm() was given, since when kLater
// groups of copies were ended. A thread finds its own chunks; others wait for it.
template <typename T, int kLater, int kRows>
__device__ inline void normalise(const NormBy& by, int chunks, uint4* memory, uint4* rows,
                                 float (&sums)[kRows]) {
  const bool centred = by.bias != nullptr;
  auto* const of_warps = reinterpret_cast<float*>(memory + (centred ? 2 : 1) * chunks);
  sum_over_block(sums, of_warps);

  const auto width = static_cast<float>(chunks * kWide<T>);
  float means[kRows] = {};
  if (centred) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      means[r] = sums[r] / width;
      sums[r] = 0;
    }
    for_own_chunks(chunks, [&](int i) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float values[kWide<T>];
        unpack<T>(rows[r * chunks + i], values);
        for (const float value : values) {
          const float off = value - means[r];
          sums[r] = fmaf(off, off, sums[r]);
        }
      }
    });
    sum_over_block(sums, of_warps + kRows * kNormWarps);
  }

#pragma unroll
  for (int r = 0; r < kRows; ++r) sums[r] = rsqrtf(sums[r] / width + by.epsilon);
  wait_for_copies<kLater>();
  for_own_chunks(chunks, [&](int i) {
    float weight[kWide<T>], bias[kWide<T>] = {};
    unpack<T>(memory[i], weight);
    if (centred) unpack<T>(memory[chunks + i], bias);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float values[kWide<T>];
      unpack<T>(rows[r * chunks + i], values);
#pragma unroll
      for (int j = 0; j < kWide<T>; ++j) {
        // Fused in so many words: else a compiler may do so here and not there.
        values[j] = fmaf((values[j] - means[r]) * sums[r], weight[j], bias[j]);
      }
      rows[r * chunks + i] = packed<T>(values);
    }
  });
}

}  // namespace haul::kernels::cuda
