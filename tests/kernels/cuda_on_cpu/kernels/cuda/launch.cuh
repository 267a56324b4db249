#pragma once

// Stands for haul's launcher where the kernels' files are compiled for the CPU: the same names, and
// those of the GPU's language that the kernels use. The threads of a cluster's blocks are threads
// of the process, clusters come one after another, and what a GPU does by warps waits at barriers.

#include <algorithm>
#include <barrier>
#include <bit>
#include <cmath>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#undef __device__
#undef __global__
#undef __grid_constant__
#undef __host__
#undef __launch_bounds__
#undef __shared__
#define __device__
#define __global__
#define __grid_constant__
#define __host__
#define __launch_bounds__(...)
#define __shared__ static

namespace haul::kernels::cuda {

constexpr int kMostCluster = 3;

struct Machine {
  int processors = 3;
  std::size_t shared = 227 << 10;
  int cluster = 2;
};

inline Machine machine_of_tests;
inline Machine current_machine() {
  return machine_of_tests;
}

constexpr std::size_t kWarp = 32;

struct Warp {
  std::barrier<> barrier{kWarp};
  float values[kWarp] = {};
};

struct Block {
  Block(unsigned threads, std::size_t bytes) : barrier(threads), shared(bytes / sizeof(uint4)) {
    for (unsigned i = 0; i < threads / kWarp; ++i) warps.push_back(std::make_unique<Warp>());
  }

  std::barrier<> barrier;
  std::vector<uint4> shared;
  std::vector<std::unique_ptr<Warp>> warps;
};

struct Cluster {
  std::barrier<> barrier;
  std::vector<std::unique_ptr<Block>> blocks;
};

inline thread_local dim3 blockDim, blockIdx, gridDim, threadIdx;
inline thread_local Block* this_block = nullptr;
inline thread_local Cluster* this_cluster = nullptr;
inline thread_local int this_rank = 0;

inline void __syncthreads() {
  this_block->barrier.arrive_and_wait();
}

inline float __shfl_xor_sync(unsigned, float value, int mask) {
  Warp& warp = *this_block->warps[threadIdx.x / kWarp];
  const std::size_t lane = threadIdx.x % kWarp;
  warp.values[lane] = value;
  warp.barrier.arrive_and_wait();
  const float other = warp.values[lane ^ static_cast<std::size_t>(mask)];
  warp.barrier.arrive_and_wait();
  return other;
}

template <typename T>
T __ldcg(const T* from) {
  return *from;
}
template <typename T>
T __ldcs(const T* from) {
  return *from;
}
inline float __uint_as_float(unsigned bits) {
  return std::bit_cast<float>(bits);
}
inline unsigned __float_as_uint(float value) {
  return std::bit_cast<unsigned>(value);
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float rsqrtf(float value) {
  return 1 / std::sqrt(value);
}
using std::min;

inline void let_next_begin() {}
inline void after_previous() {}
inline uint4* dynamic_shared() {
  return this_block->shared.data();
}
inline int rank_in_cluster() {
  return this_rank;
}
inline int cluster_size() {
  return static_cast<int>(this_cluster->blocks.size());
}
// Blocks have their memory before their threads begin: there is nothing to wait for.
inline thread_local bool came = false;
inline void come_to_cluster() {
  came = true;
}
inline void wait_until_all_came() {
  if (!came) throw std::logic_error("a thread waits for a cluster to which it did not come");
}
inline void wait_for_cluster() {
  this_cluster->barrier.arrive_and_wait();
}
inline uint4* shared_of(int rank) {
  return this_cluster->blocks[static_cast<std::size_t>(rank)]->shared.data();
}
// Copies arrive when they are waited for, and not before.
struct Copy {
  uint4* to;
  const uint4* from;
};
inline thread_local std::vector<std::vector<Copy>> copies(1);  // the last group is open
inline void copy_ahead(uint4* to, const uint4* from) {
  copies.back().push_back({to, from});
}
struct PassingCopies {
  void copy_ahead(uint4* to, const uint4* from) const { cuda::copy_ahead(to, from); }
};
inline void end_copies() {
  copies.emplace_back();
}
template <int kLater = 0>
void wait_for_copies() {
  while (copies.size() > kLater + 1) {
    for (const Copy& copy : copies.front()) *copy.to = *copy.from;
    copies.erase(copies.begin());
  }
}

// False where the system has not so many threads.
template <typename Job>
bool run_cluster(void (*kernel)(Job), const Job& job, dim3 grid, dim3 first, unsigned threads,
                 std::size_t shared, unsigned count) {
  const unsigned all = threads * count;
  Cluster cluster{std::barrier<>(all), {}};
  for (unsigned i = 0; i < count; ++i) {
    cluster.blocks.push_back(std::make_unique<Block>(threads, shared));
  }
  const auto run = [&](unsigned index) {
    const unsigned rank = index / threads;
    this_cluster = &cluster;
    this_rank = static_cast<int>(rank);
    this_block = cluster.blocks[rank].get();
    blockDim = threads;
    blockIdx = dim3(first.x + rank, first.y, first.z);
    gridDim = grid;
    threadIdx = index % threads;
    kernel(job);
    this_block->barrier.arrive_and_drop();  // others may have further to go
    cluster.barrier.arrive_and_drop();
  };
  std::vector<std::jthread> running;
  try {
    while (running.size() < all) {
      running.emplace_back(run, static_cast<unsigned>(running.size()));
    }
  } catch (const std::system_error&) {
    for (std::size_t index = running.size(); index < all; ++index) {
      Block& block = *cluster.blocks[index / threads];
      block.barrier.arrive_and_drop();
      block.warps[index % threads / kWarp]->barrier.arrive_and_drop();
      cluster.barrier.arrive_and_drop();
    }
    return false;
  }
  return true;
}

template <typename Job>
cudaError_t start(void (*kernel)(Job), const Job& job, dim3 grid, int threads, std::size_t shared,
                  cudaStream_t, int cluster = 1) {
  const Machine machine = current_machine();
  if (shared > machine.shared || cluster > machine.cluster) return cudaErrorInvalidValue;
  const auto together = static_cast<unsigned>(cluster);
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; x += together) {
        if (!run_cluster(kernel, job, grid, dim3(x, y, z), static_cast<unsigned>(threads), shared,
                         together)) {
          return cudaErrorLaunchOutOfResources;
        }
      }
    }
  }
  return cudaSuccess;
}

}  // namespace haul::kernels::cuda
