#pragma once

// How haul's kernels are started and what they share. A kernel may begin before the one ahead of it
// has ended: what it does before after_previous() must not look at that one's results. What others
// have computed is read past the first cache (`fresh`), which may hold lines from before.

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace haul::kernels::cuda {

using bf16 = __nv_bfloat16;

constexpr int kLanes = 32;      // threads of a warp
constexpr int kWide = 8;        // numbers of a 16-byte access
constexpr unsigned kAll = ~0U;  // lanes

struct Machine {
  int processors = 0;
  std::size_t shared = 0;  // bytes that a block may have
  bool overlaps = false;   // kernels may begin early
};

inline Machine current_machine() {
  int device = 0;
  cudaGetDevice(&device);
  Machine machine;
  int major = 0;
  int shared = 0;
  cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  machine.shared = static_cast<std::size_t>(shared);
  cudaDeviceGetAttribute(&machine.processors, cudaDevAttrMultiProcessorCount, device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  machine.overlaps = major >= 9;
  return machine;
}

template <typename Job>
cudaError_t start(void (*kernel)(Job), const Job& job, dim3 grid, int threads, std::size_t shared,
                  cudaStream_t stream) {
  constexpr std::size_t kAlwaysThere = 48 * 1024;
  if (shared > kAlwaysThere) {
    const cudaError_t raised = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
    if (raised != cudaSuccess) return raised;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early;
  config.numAttrs = current_machine().overlaps ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, job);
}

#ifdef __CUDACC__

__device__ inline void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}
__device__ inline void after_previous() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

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

// The sum over `width` lanes next to each other, a power of two, in each of them.
__device__ inline float sum_of_lanes(float value, int width = kLanes) {
  for (int step = width / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAll, value, step);
  return value;
}

#endif

}  // namespace haul::kernels::cuda
