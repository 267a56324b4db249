#pragma once

// What haul's kernels share on the GPU: how numbers are read and unpacked, and sums over lanes.
// What others have computed is read past the first cache (`fresh`), which may hold lines from
// before.

#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/launch.cuh"  // which has the language's functions where there is no GPU
#include "kernels/cuda/numbers.h"

namespace haul::kernels::cuda {

using bf16 = __nv_bfloat16;
using fp16 = __half;

constexpr int kLanes = 32;      // threads of a warp
constexpr unsigned kAll = ~0U;  // lanes

template <typename T>
constexpr int kWide = sizeof(uint4) / sizeof(T);  // numbers of a 16-byte access

// Calls what is made for such numbers: run(T()).
template <typename Run>
auto for_numbers(Numbers numbers, const Run& run) {
  if (numbers == Numbers::kF32) return run(float());
  return numbers == Numbers::kF16 ? run(fp16()) : run(bf16());
}

__device__ inline float as_float(bf16 value) {
  return __bfloat162float(value);
}
__device__ inline float as_float(fp16 value) {
  return __half2float(value);
}
__device__ inline float as_float(float value) {
  return value;
}
template <typename T>
__device__ inline T as_number(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else if constexpr (std::is_same_v<T, fp16>) {
    return __float2half_rn(value);
  } else {
    return __float2bfloat16_rn(value);
  }
}
// As a number of the type would keep it.
template <typename T>
__device__ inline float rounded(float value) {
  return as_float(as_number<T>(value));
}

__device__ inline uint4 fresh(const uint4* at) {
  return __ldcg(at);
}
__device__ inline float fresh(const float* at) {
  return __ldcg(at);
}
__device__ inline bf16 fresh(const bf16* at) {
  return __ushort_as_bfloat16(__ldcg(reinterpret_cast<const unsigned short*>(at)));
}
__device__ inline fp16 fresh(const fp16* at) {
  return __ushort_as_half(__ldcg(reinterpret_cast<const unsigned short*>(at)));
}
// Read once: not kept in any cache for longer than needed.
__device__ inline uint4 passing(const uint4* at) {
  return __ldcs(at);
}

// Of two numbers in a word.
template <typename T>
__device__ inline float low(unsigned both) {
  if constexpr (std::is_same_v<T, bf16>) {
    return __uint_as_float(both << 16);  // a bfloat16 is the upper half of a float
  } else {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(both)));
  }
}
template <typename T>
__device__ inline float high(unsigned both) {
  if constexpr (std::is_same_v<T, bf16>) {
    return __uint_as_float(both & 0xffff0000U);
  } else {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(both >> 16)));
  }
}
template <typename T>
__device__ inline unsigned bits_of(float value) {
  if constexpr (std::is_same_v<T, bf16>) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
  } else {
    return __half_as_ushort(__float2half_rn(value));
  }
}

template <typename T>
__device__ inline void unpack(const uint4& packed, float (&out)[kWide<T>]) {
  const unsigned words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (std::is_same_v<T, float>) {
      out[i] = __uint_as_float(words[i]);
    } else {
      out[2 * i] = low<T>(words[i]);
      out[2 * i + 1] = high<T>(words[i]);
    }
  }
}
template <typename T>
__device__ inline uint4 packed(const float (&values)[kWide<T>]) {
  unsigned words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (std::is_same_v<T, float>) {
      words[i] = __float_as_uint(values[i]);
    } else {
      words[i] = bits_of<T>(values[2 * i]) | bits_of<T>(values[2 * i + 1]) << 16;
    }
  }
  return {words[0], words[1], words[2], words[3]};
}

// The sum over `width` lanes next to each other, a power of two, in each of them.
__device__ inline float sum_of_lanes(float value, int width = kLanes) {
  for (int step = width / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAll, value, step);
  return value;
}

}  // namespace haul::kernels::cuda
