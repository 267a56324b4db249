#pragma once

// How haul's kernels are started. A kernel may begin before the one ahead of it has ended: what it
// does before after_previous() must not look at that one's results. Tests without a GPU have a file
// of this name instead.

#include <cstddef>

#include <cuda_pipeline.h>
#include <cuda_runtime.h>

namespace haul::kernels::cuda {

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
// The memory that start() was asked for.
__device__ inline uint4* dynamic_shared() {
  extern __shared__ uint4 memory[];
  return memory;
}
// Begins a copy to shared memory. The thread that asks for it may read it after wait_for_copies().
__device__ inline void copy_ahead(uint4* to, const uint4* from) {
  __pipeline_memcpy_async(to, from, sizeof(uint4));
}
__device__ inline void wait_for_copies() {
  __pipeline_commit();
  __pipeline_wait_prior(0);
}

}  // namespace haul::kernels::cuda
