#pragma once

// Stands for haul's launcher where the kernels' files are compiled for the CPU: the same names, and
// those of the GPU's language that the kernels use. The threads of a cluster's blocks take turns on
// the caller's, each with a stack of its own, until they wait at a barrier; what a GPU does by
// warps waits at barriers, too. Clusters come one after another.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <ucontext.h>

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

struct Barrier {
  explicit Barrier(unsigned threads) : expected(threads) {}

  void arrive() {
    ++arrived;
    end_phase();
  }
  void drop() {
    --expected;
    end_phase();
  }
  void end_phase() {
    if (arrived < expected || arrived == 0) return;
    arrived = 0;
    ++phase;
  }

  unsigned expected;
  unsigned arrived = 0;
  unsigned phase = 0;
};

struct Warp {
  Barrier barrier{kWarp};
  float values[kWarp] = {};
};

struct Block {
  Block(unsigned threads, std::size_t bytes)
      : barrier(threads), warps(threads / kWarp), shared(bytes / sizeof(uint4)) {}

  Barrier barrier;
  std::vector<Warp> warps;
  std::vector<uint4> shared;
};

struct Cluster {
  Barrier barrier;
  std::vector<Block> blocks;
};

// Copies arrive when they are waited for, and not before.
struct Copy {
  uint4* to;
  const uint4* from;
};

struct Thread {
  bool may_go_on() const {
    return !ended && (waits_at == nullptr || waits_at->phase != waits_in_phase);
  }

  ucontext_t context{};
  dim3 block;
  unsigned index = 0;  // in its block
  int rank = 0;        // of its block in the cluster
  const Barrier* waits_at = nullptr;
  unsigned waits_in_phase = 0;
  bool ended = false;
  bool came = false;
  std::vector<std::vector<Copy>> copies{1};  // the last group is open
  std::exception_ptr error;
};

inline thread_local dim3 blockDim, blockIdx, gridDim, threadIdx;
inline thread_local Thread* this_thread = nullptr;
inline thread_local Block* this_block = nullptr;
inline thread_local Cluster* this_cluster = nullptr;
inline thread_local const std::function<void()>* this_kernel = nullptr;
inline thread_local ucontext_t turns;  // of whoever gives them

inline void wait_at(Barrier& barrier) {
  Thread& thread = *this_thread;
  thread.waits_at = &barrier;
  thread.waits_in_phase = barrier.phase;
  barrier.arrive();
  if (!thread.may_go_on()) swapcontext(&thread.context, &turns);
}

inline void __syncthreads() {
  wait_at(this_block->barrier);
}

inline float __shfl_xor_sync(unsigned, float value, int mask) {
  Warp& warp = this_block->warps[threadIdx.x / kWarp];
  const std::size_t lane = threadIdx.x % kWarp;
  warp.values[lane] = value;
  wait_at(warp.barrier);
  const float other = warp.values[lane ^ static_cast<std::size_t>(mask)];
  wait_at(warp.barrier);
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
  return this_thread->rank;
}
inline int cluster_size() {
  return static_cast<int>(this_cluster->blocks.size());
}
// Blocks have their memory before their threads begin: there is nothing to wait for.
inline void come_to_cluster() {
  this_thread->came = true;
}
inline void wait_until_all_came() {
  if (!this_thread->came)
    throw std::logic_error("a thread waits for a cluster to which it did not come");
}
inline void wait_for_cluster() {
  wait_at(this_cluster->barrier);
}
inline uint4* shared_of(int rank) {
  return this_cluster->blocks[static_cast<std::size_t>(rank)].shared.data();
}
inline void copy_ahead(uint4* to, const uint4* from) {
  this_thread->copies.back().push_back({to, from});
}
struct PassingCopies {
  void copy_ahead(uint4* to, const uint4* from) const { cuda::copy_ahead(to, from); }
};
inline void end_copies() {
  this_thread->copies.emplace_back();
}
template <int kLater = 0>
void wait_for_copies() {
  std::vector<std::vector<Copy>>& copies = this_thread->copies;
  while (copies.size() > kLater + 1) {
    for (const Copy& copy : copies.front()) *copy.to = *copy.from;
    copies.erase(copies.begin());
  }
}

inline void run_thread() {
  try {
    (*this_kernel)();
  } catch (...) {
    this_thread->error = std::current_exception();
  }
  this_thread->ended = true;
  this_block->barrier.drop();  // others may have further to go
  this_cluster->barrier.drop();
}

inline void give_turn(Thread& thread) {
  this_thread = &thread;
  this_block = &this_cluster->blocks[static_cast<std::size_t>(thread.rank)];
  blockIdx = thread.block;
  threadIdx = thread.index;
  swapcontext(&turns, &thread.context);
}

// Until all have ended. From either end, by chance: results that depend on who comes first differ.
inline void take_turns(std::vector<Thread>& threads) {
  static thread_local std::minstd_rand chance;
  for (bool some = true; some;) {
    some = false;
    const bool from_end = (chance() & 0x100) != 0;
    for (std::size_t i = 0; i < threads.size(); ++i) {
      Thread& thread = threads[from_end ? threads.size() - 1 - i : i];
      if (!thread.may_go_on()) continue;
      give_turn(thread);
      some = true;
    }
  }
  for (const Thread& thread : threads) {
    if (thread.error) std::rethrow_exception(thread.error);
  }
  for (const Thread& thread : threads) {
    if (!thread.ended) throw std::logic_error("threads wait for some that never come");
  }
}

constexpr std::size_t kStack = 256 << 10;

inline std::byte* stack_of(std::size_t thread) {
  static thread_local std::vector<std::unique_ptr<std::byte[]>> stacks;
  while (stacks.size() <= thread) {
    stacks.push_back(std::make_unique_for_overwrite<std::byte[]>(kStack));
  }
  return stacks[thread].get();
}

inline void begin(ucontext_t& context, std::byte* stack) {
  getcontext(&context);
  context.uc_stack.ss_sp = stack;
  context.uc_stack.ss_size = kStack;
  context.uc_link = &turns;
  makecontext(&context, &run_thread, 0);
}

inline void run_cluster(const std::function<void()>& kernel, dim3 first, unsigned threads,
                        std::size_t shared, unsigned count) {
  Cluster cluster{Barrier(threads * count), {}};
  for (unsigned i = 0; i < count; ++i) cluster.blocks.emplace_back(threads, shared);
  this_cluster = &cluster;
  this_kernel = &kernel;
  std::vector<Thread> all(threads * count);
  for (unsigned i = 0; i < all.size(); ++i) {
    Thread& thread = all[i];
    const unsigned rank = i / threads;
    thread.rank = static_cast<int>(rank);
    thread.block = dim3(first.x + rank, first.y, first.z);
    thread.index = i % threads;
    begin(thread.context, stack_of(i));
  }
  take_turns(all);
}

template <typename Job>
cudaError_t start(void (*kernel)(Job), const Job& job, dim3 grid, int threads, std::size_t shared,
                  cudaStream_t, int cluster = 1) {
  const Machine machine = current_machine();
  if (shared > machine.shared || cluster > machine.cluster) return cudaErrorInvalidValue;
  const auto together = static_cast<unsigned>(cluster);
  const std::function<void()> run = [&] { kernel(job); };
  gridDim = grid;
  blockDim = static_cast<unsigned>(threads);
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; x += together) {
        run_cluster(run, dim3(x, y, z), static_cast<unsigned>(threads), shared, together);
      }
    }
  }
  return cudaSuccess;
}

}  // namespace haul::kernels::cuda
