#pragma once

// What haul's kernels share on the GPU: how numbers are read and unpacked, and sums over lanes.
// What others have computed is read past the first cache (`fresh`), which may hold lines from
// before.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/launch.cuh"  // which has the language's functions where there is no GPU

namespace haul::kernels::cuda {

using bf16 = __nv_bfloat16;

constexpr int kLanes = 32;      // threads of a warp
constexpr int kWide = 8;        // numbers of a 16-byte access
constexpr unsigned kAll = ~0U;  // lanes

__device__ inline uint4 fresh(const uint4* at) {
  return __ldcg(at);
}
__device__ inline float fresh(const bf16* at) {
  const unsigned short bits = __ldcg(reinterpret_cast<const unsigned short*>(at));
  return __bfloat162float(__ushort_as_bfloat16(bits));
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
__device__ inline float rounded(float value) {
  return __bfloat162float(__float2bfloat16_rn(value));
}
__device__ inline void unpack(const uint4& packed, float (&out)[kWide]) {
  const unsigned words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = low(words[i]);
    out[2 * i + 1] = high(words[i]);
  }
}

__device__ inline uint4 packed(const float (&values)[kWide]) {
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

// The sum over `width` lanes next to each other, a power of two, in each of them.
__device__ inline float sum_of_lanes(float value, int width = kLanes) {
  for (int step = width / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAll, value, step);
  return value;
}

}  // namespace haul::kernels::cuda
