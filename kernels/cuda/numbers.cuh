#pragma once

// What haul's kernels share on the GPU: how numbers are read and unpacked, and sums over lanes.
// What others have computed is read past the first cache (`fresh`), which may hold lines from
// before.

#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/launch.cuh"  // which has the language's functions where there is no GPU
#include "kernels/cuda/numbers.h"

namespace haul::kernels::cuda {

using bf16 = __nv_bfloat16;

constexpr int kLanes = 32;      // threads of a warp
constexpr unsigned kAll = ~0U;  // lanes

template <typename T>
constexpr int kWide = sizeof(uint4) / sizeof(T);  // numbers of a 16-byte access

// Calls what is made for such numbers: run(T()).
template <typename Run>
auto for_numbers(Numbers numbers, const Run& run) {
  return numbers == Numbers::kF32 ? run(float()) : run(bf16());
}

__device__ inline float as_float(bf16 value) {
  return __bfloat162float(value);
}
__device__ inline float as_float(float value) {
  return value;
}
template <typename T>
__device__ inline T as_number(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
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
// Read once: not kept in any cache for longer than needed.
__device__ inline uint4 passing(const uint4* at) {
  return __ldcs(at);
}

// A bfloat16 is the upper half of a float.
__device__ inline float low(unsigned both) {
  return __uint_as_float(both << 16);
}
__device__ inline float high(unsigned both) {
  return __uint_as_float(both & 0xffff0000U);
}
__device__ inline void unpack(const uint4& packed, float (&out)[kWide<bf16>]) {
  const unsigned words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = low(words[i]);
    out[2 * i + 1] = high(words[i]);
  }
}

__device__ inline void unpack(const uint4& packed, float (&out)[kWide<float>]) {
  out[0] = __uint_as_float(packed.x);
  out[1] = __uint_as_float(packed.y);
  out[2] = __uint_as_float(packed.z);
  out[3] = __uint_as_float(packed.w);
}

__device__ inline uint4 packed(const float (&values)[kWide<bf16>]) {
  unsigned words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto half = [&](int at) -> unsigned {
      return __bfloat16_as_ushort(__float2bfloat16_rn(values[at]));
    };
    words[i] = half(2 * i) | half(2 * i + 1) << 16;
  }
  return {words[0], words[1], words[2], words[3]};
}
__device__ inline uint4 packed(const float (&values)[kWide<float>]) {
  return {__float_as_uint(values[0]), __float_as_uint(values[1]), __float_as_uint(values[2]),
          __float_as_uint(values[3])};
}

// The sum over `width` lanes next to each other, a power of two, in each of them.
__device__ inline float sum_of_lanes(float value, int width = kLanes) {
  for (int step = width / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAll, value, step);
  return value;
}

}  // namespace haul::kernels::cuda
