#include <algorithm>

#include "kernels/cuda/columns.h"
#include "kernels/cuda/few_rows.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"

namespace haul::kernels::cuda {
namespace {

// A block has a strip of columns: all of its sums, so that no block waits for another, and narrow,
// so that small weights are spread over many processors. Its threads take the rows in turns.
constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kLanes;
constexpr int kChunks = 4;  // of kWide columns
constexpr int kStrip = kChunks * kWide;
constexpr int kRows = kThreads / kChunks;  // at a time
constexpr int kUnroll = 8;
constexpr std::size_t kMostShared = 96 << 10;  // bytes; some GPUs have less

template <int kVectors>
__global__ void __launch_bounds__(kThreads) columns(const __grid_constant__ Columns job) {
  __shared__ float of_warps[kWarps][kStrip];
  auto* const x_shared = reinterpret_cast<bf16*>(dynamic_shared());  // (vectors, width)
  let_next_begin();
  const int thread = static_cast<int>(threadIdx.x);
  const int row = thread / kChunks;
  const int column = static_cast<int>(blockIdx.x) * kStrip + thread % kChunks * kWide;
  const bool inside = column < job.columns;
  uint4 words[kUnroll];
  const auto load = [&](int begin) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int at = begin + u * kRows + row;
      const std::size_t first =
          static_cast<std::size_t>(at) * static_cast<std::size_t>(job.columns) +
          static_cast<std::size_t>(column);
      words[u] = inside && at < job.width
                     ? passing(reinterpret_cast<const uint4*>(job.weight + first))
                     : uint4{0, 0, 0, 0};
    }
  };
  load(0);  // before there is anything to multiply
  after_previous();
  for (int i = thread; i < kVectors * job.width; i += kThreads) {
    x_shared[i] = __float2bfloat16_rn(fresh(job.x + i));
  }
  __syncthreads();

  float sums[kVectors][kWide] = {};
  for (int begin = 0; begin < job.width; begin += kUnroll * kRows) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int at = begin + u * kRows + row;
      if (at >= job.width) continue;
      float w[kWide];
      unpack(words[u], w);
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const float factor = __bfloat162float(x_shared[v * job.width + at]);
#pragma unroll
        for (int i = 0; i < kWide; ++i) sums[v][i] = fmaf(w[i], factor, sums[v][i]);
      }
    }
    load(begin + kUnroll * kRows);
  }

  const int lane = thread % kLanes;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
#pragma unroll
    for (int i = 0; i < kWide; ++i) {
      // Lanes that are kChunks apart have the same columns.
      float sum = sums[v][i];
      for (int step = kChunks; step < kLanes; step *= 2) sum += __shfl_xor_sync(kAll, sum, step);
      if (lane < kChunks) of_warps[thread / kLanes][lane * kWide + i] = sum;
    }
    __syncthreads();
    const int mine = static_cast<int>(blockIdx.x) * kStrip + thread;
    if (thread < kStrip && mine < job.columns) {
      float sum = 0;
      for (int warp = 0; warp < kWarps; ++warp) sum += of_warps[warp][thread];
      if (job.bias != nullptr) sum += __bfloat162float(job.bias[mine]);
      const std::size_t to = static_cast<std::size_t>(v) * static_cast<std::size_t>(job.columns) +
                             static_cast<std::size_t>(mine);
      if (job.residual != nullptr) sum = rounded(sum) + fresh(job.residual + to);
      job.out[to] = __float2bfloat16_rn(sum);
    }
    __syncthreads();
  }
}

std::size_t shared_for(std::size_t width, int vectors) {
  const std::size_t bytes = width * sizeof(bf16) * static_cast<std::size_t>(vectors);
  return (bytes + sizeof(uint4) - 1) / sizeof(uint4) * sizeof(uint4);
}

}  // namespace

bool serves_columns(std::size_t width, std::size_t columns, int vectors) {
  return width > 0 && columns > 0 && columns % kWide == 0 && vectors >= 1 &&
         vectors <= kMostVectors &&
         shared_for(width, vectors) <= std::min(kMostShared, current_machine().shared);
}

cudaError_t multiply_columns(const Columns& job, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((job.columns + kStrip - 1) / kStrip));
  const std::size_t shared = shared_for(static_cast<std::size_t>(job.width), job.vectors);
  switch (job.vectors) {
    case 1:
      return start(columns<1>, job, grid, kThreads, shared, stream);
    case 2:
      return start(columns<2>, job, grid, kThreads, shared, stream);
    case 3:
      return start(columns<3>, job, grid, kThreads, shared, stream);
    case 4:
      return start(columns<4>, job, grid, kThreads, shared, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace haul::kernels::cuda
