#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/likeliest.h"
#include "kernels/cuda/numbers.cuh"

namespace haul::kernels::cuda {
namespace {

// A row is read by so many blocks that the whole GPU is at it, since all of it is needed for one
// number; then a block of its own compares what they found.
constexpr int kThreads = 256;
constexpr int kPart = kThreads * kWide;

__host__ __device__ int parts_of(int width) {
  return (width + kPart - 1) / kPart;
}

using Rank = unsigned long long;

// Of two numbers the larger has the larger rank, of two places with the same number the first.
__device__ Rank rank_of(unsigned bits, int place) {
  constexpr unsigned kSign = 0x8000, kInfinity = 0x7f80;
  unsigned order = 0;
  if ((bits & ~kSign) > kInfinity) {
    order = 0xffff;  // NaN
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

__global__ void __launch_bounds__(kThreads) look_at_part(const __grid_constant__ Likeliest job) {
  let_next_begin();
  const int thread = static_cast<int>(threadIdx.x);
  const int part = static_cast<int>(blockIdx.x);
  const auto row = static_cast<std::size_t>(blockIdx.y);
  const bf16* const scores = job.scores + row * static_cast<std::size_t>(job.width);
  Rank best = 0;
  const auto look = [&](unsigned bits, int place) {
    const Rank rank = rank_of(bits, place);
    if (rank > best) best = rank;
  };
  after_previous();
  if (job.width % kWide == 0) {
    const int place = part * kPart + thread * kWide;
    if (place < job.width) {
      const uint4 packed = fresh(reinterpret_cast<const uint4*>(scores + place));
      const unsigned words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
      for (int i = 0; i < kWide; ++i) look(words[i / 2] >> (i % 2 * 16) & 0xffff, place + i);
    }
  } else {  // rows begin anywhere
#pragma unroll
    for (int i = 0; i < kWide; ++i) {
      const int place = part * kPart + i * kThreads + thread;
      if (place >= job.width) continue;
      look(__ldcg(reinterpret_cast<const unsigned short*>(scores + place)), place);
    }
  }
  best = largest_of_block(best);
  if (thread == 0) job.best[row * gridDim.x + static_cast<std::size_t>(part)] = best;
}

__global__ void __launch_bounds__(kThreads) compare_parts(const __grid_constant__ Likeliest job) {
  let_next_begin();
  const int row = static_cast<int>(blockIdx.x);
  const int parts = parts_of(job.width);
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

int parts_for(int width) {
  return parts_of(width);
}

cudaError_t find_likeliest(const Likeliest& job, cudaStream_t stream) {
  if (job.rows == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(parts_for(job.width)), static_cast<unsigned>(job.rows));
  const cudaError_t found = start(look_at_part, job, grid, kThreads, 0, stream);
  if (found != cudaSuccess) return found;
  return start(compare_parts, job, dim3(static_cast<unsigned>(job.rows)), kThreads, 0, stream);
}

}  // namespace haul::kernels::cuda
