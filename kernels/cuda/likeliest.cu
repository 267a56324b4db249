#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/likeliest.h"
#include "kernels/cuda/numbers.cuh"

namespace haul::kernels::cuda {
namespace {

// A row is read by so many blocks that the whole GPU is at it, since all of it is needed for one
// number; then a block of its own compares what they found.
constexpr int kThreads = 256;
template <typename T>
constexpr int kPart = kThreads * sizeof(uint4) / sizeof(T);

template <typename T>
__host__ __device__ int parts_of(int width) {
  return (width + kPart<T> - 1) / kPart<T>;
}

using Rank = unsigned long long;

// Of two numbers the larger has the larger rank, of two places with the same number the first.
__device__ Rank rank_of(float value, int place) {
  constexpr unsigned kSign = 0x80000000, kInfinity = 0x7f800000;
  const unsigned bits = __float_as_uint(value);
  unsigned order = 0;
  if ((bits & ~kSign) > kInfinity) {
    order = 0xffffffff;  // NaN
  } else if (bits == kSign || (bits & kSign) == 0) {
    order = (bits & ~kSign) | kSign;  // both zeros are one
  } else {
    order = kSign - (bits & ~kSign);
  }
  return static_cast<Rank>(order) << 32 | (0xffffffffU - static_cast<unsigned>(place));
}

// The largest of a block's ranks, in thread 0.
__device__ Rank largest_of_block(Rank rank) {
  __shared__ Rank ranks[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  ranks[thread] = rank;
  __syncthreads();
  for (int step = kThreads / 2; step > 0; step /= 2) {
    if (thread < step && ranks[thread + step] > ranks[thread]) ranks[thread] = ranks[thread + step];
    __syncthreads();
  }
  return ranks[0];
}

template <typename T>
__global__ void __launch_bounds__(kThreads) look_at_part(const __grid_constant__ Likeliest job) {
  let_next_begin();
  const int thread = static_cast<int>(threadIdx.x);
  const int part = static_cast<int>(blockIdx.x);
  const auto row = static_cast<std::size_t>(blockIdx.y);
  const T* const scores =
      static_cast<const T*>(job.scores) + row * static_cast<std::size_t>(job.width);
  Rank best = 0;
  const auto look = [&](float value, int place) {
    const Rank rank = rank_of(value, place);
    if (rank > best) best = rank;
  };
  after_previous();
  if (job.width % kWide<T> == 0) {
    const int place = part * kPart<T> + thread * kWide<T>;
    if (place < job.width) {
      float values[kWide<T>];
      unpack<T>(fresh(reinterpret_cast<const uint4*>(scores + place)), values);
#pragma unroll
      for (int i = 0; i < kWide<T>; ++i) look(values[i], place + i);
    }
  } else {  // rows begin anywhere
#pragma unroll
    for (int i = 0; i < kWide<T>; ++i) {
      const int place = part * kPart<T> + i * kThreads + thread;
      if (place >= job.width) continue;
      look(as_float(fresh(scores + place)), place);
    }
  }
  best = largest_of_block(best);
  if (thread == 0) job.best[row * gridDim.x + static_cast<std::size_t>(part)] = best;
}

template <typename T>
__global__ void __launch_bounds__(kThreads) compare_parts(const __grid_constant__ Likeliest job) {
  let_next_begin();
  const int row = static_cast<int>(blockIdx.x);
  const int parts = parts_of<T>(job.width);
  Rank best = 0;
  after_previous();
  for (int part = static_cast<int>(threadIdx.x); part < parts; part += kThreads) {
    const Rank rank =
        __ldcg(job.best + static_cast<std::size_t>(row) * static_cast<unsigned>(parts) +
               static_cast<std::size_t>(part));
    if (rank > best) best = rank;
  }
  best = largest_of_block(best);
  if (threadIdx.x == 0) {
    job.out[row] = static_cast<std::int64_t>(0xffffffffU - static_cast<unsigned>(best));
  }
}

}  // namespace

bool serves_scores_of(std::int64_t width) {
  constexpr std::int64_t kMost = 1 << 30;
  return width > 0 && width <= kMost;
}

int parts_for(Numbers numbers, int width) {
  return for_numbers(numbers, [&](auto number) { return parts_of<decltype(number)>(width); });
}

cudaError_t find_likeliest(const Likeliest& job, cudaStream_t stream) {
  if (job.rows == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(parts_for(job.numbers, job.width)),
                  static_cast<unsigned>(job.rows));
  return for_numbers(job.numbers, [&](auto number) {
    using T = decltype(number);
    const cudaError_t found = start(look_at_part<T>, job, grid, kThreads, 0, stream);
    if (found != cudaSuccess) return found;
    return start(compare_parts<T>, job, dim3(static_cast<unsigned>(job.rows)), kThreads, 0, stream);
  });
}

}  // namespace haul::kernels::cuda
