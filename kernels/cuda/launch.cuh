#pragma once

// How haul's kernels are started. A kernel may begin before the one ahead of it has ended, and that
// one before the one ahead of it: what it does before after_previous() must not look at results of
// the kernels of a pass, which begins with one of torch's that waits for all before it. Tests
// without a GPU have a file of this name instead.

#include <cstddef>
#include <mutex>

#include <cooperative_groups.h>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

namespace haul::kernels::cuda {

constexpr int kMostCluster = 8;  // blocks

struct Machine {
  int processors = 0;
  std::size_t shared = 0;  // bytes that a block may have
  bool overlaps = false;   // kernels may begin early
  int cluster = 1;         // blocks that may read each other's shared memory, at most
};

// Whether the kernels that a new GPU gets are made for such: else they do without.
constexpr bool is_built_for_clusters() {
  for (const int architecture : {__CUDA_ARCH_LIST__}) {
    if (architecture >= 900) return true;
  }
  return false;
}

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
  machine.overlaps = major >= 9 && is_built_for_clusters();
  machine.cluster = machine.overlaps ? kMostCluster : 1;
  return machine;
}

// How much of a processor's memory is shared memory, of all that may be, where a block does not
// need more: one part for all kernels, because a processor changes it only when nothing runs there.
// The rest is what loads pass through. Of 28 to 100 % on an H200 this was the fastest.
constexpr int kSharedPercent = 72;

// So many blocks that follow each other in the grid's first dimension are a cluster.
template <typename Job>
cudaError_t start(void (*kernel)(Job), const Job& job, dim3 grid, int threads, std::size_t shared,
                  cudaStream_t stream, int cluster = 1) {
  constexpr std::size_t kAlwaysThere = 48 * 1024;
  // What a kernel may have is one number, which another thread may set for a smaller input.
  static std::mutex mutex;
  std::unique_lock<std::mutex> alone(mutex, std::defer_lock);
  if (shared > kAlwaysThere) {
    alone.lock();
    const cudaError_t raised = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
    if (raised != cudaSuccess) return raised;
  }
  const cudaError_t split =
      cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, kSharedPercent);
  if (split != cudaSuccess) return split;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  if (current_machine().overlaps) {
    cudaLaunchAttribute& early = attributes[config.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster > 1) {
    cudaLaunchAttribute& together = attributes[config.numAttrs++];
    together.id = cudaLaunchAttributeClusterDimension;
    together.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  }
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
// Of this block in its cluster, and of all blocks there are.
__device__ inline int rank_in_cluster() {
#if __CUDA_ARCH__ >= 900
  return static_cast<int>(cooperative_groups::this_cluster().block_rank());
#else
  return 0;
#endif
}
__device__ inline int cluster_size() {
#if __CUDA_ARCH__ >= 900
  return static_cast<int>(cooperative_groups::this_cluster().num_blocks());
#else
  return 1;
#endif
}
// Shared memory of another block may be written when all threads of the cluster came, which says
// nothing of what they wrote: it costs no wait for what they have on its way.
__device__ inline void come_to_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
__device__ inline void wait_until_all_came() {  // REQUIRES: come_to_cluster()
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}
// Until all threads of the cluster have come here, and see what the others wrote.
__device__ inline void wait_for_cluster() {
#if __CUDA_ARCH__ >= 900
  cooperative_groups::this_cluster().sync();
#else
  __syncthreads();
#endif
}
// The dynamic_shared() of a block of the cluster, from when it began until it ends.
__device__ inline uint4* shared_of(int rank) {
#if __CUDA_ARCH__ >= 900
  return cooperative_groups::this_cluster().map_shared_rank(dynamic_shared(), rank);
#else
  return dynamic_shared();
#endif
}
// Begins a copy to shared memory. The thread that asks for it may read it after wait_for_copies().
__device__ inline void copy_ahead(uint4* to, const uint4* from) {
  __pipeline_memcpy_async(to, from, sizeof(uint4));
}
// Copies of what is read once: caches keep it no longer than needed. Before Ampere nothing copies
// ahead: a thread waits for what it asks for.
class PassingCopies {
 public:
#if __CUDA_ARCH__ >= 800
  __device__ PassingCopies() {
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy_));
  }
  __device__ void copy_ahead(uint4* to, const uint4* from) const {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(
                     static_cast<unsigned>(__cvta_generic_to_shared(to))),
                 "l"(from), "l"(policy_)
                 : "memory");
  }

 private:
  unsigned long long policy_;
#else
  __device__ void copy_ahead(uint4* to, const uint4* from) const {
    *to = __ldcs(from);
  }
#endif
};
// Ends a group of a thread's copies; groups arrive in their order.
__device__ inline void end_copies() {
  __pipeline_commit();
}
// For all groups but so many that were ended last.
template <int kLater = 0>
__device__ inline void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kLater) : "memory");
#endif
}

}  // namespace haul::kernels::cuda
