#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/rms_norm.h"

namespace haul::kernels::cuda {
namespace {

constexpr int kMostThreads = 1024;
constexpr int kEach = 4;      // numbers that a thread takes at once
constexpr int kMostKept = 4;  // times that, in registers

// A row a block, in kEach numbers at a time.
__global__ void __launch_bounds__(kMostThreads) rms_norm(const __grid_constant__ RmsNorm job) {
  __shared__ float of_warps[kMostThreads / kLanes];
  let_next_begin();
  const int threads = static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.x);
  const std::size_t begin = static_cast<std::size_t>(blockIdx.x) * static_cast<unsigned>(job.width);
  const int groups = job.width / kEach;
  const auto* const x = reinterpret_cast<const uint2*>(job.x + begin);
  const auto* const weight = reinterpret_cast<const uint2*>(job.weight);
  auto* const out = reinterpret_cast<uint2*>(job.out + begin);
  uint2 kept[kMostKept], factors[kMostKept];
#pragma unroll
  for (int k = 0; k < kMostKept; ++k) {
    const int i = thread + k * threads;
    if (i < groups) factors[k] = weight[i];
  }
  after_previous();
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kMostKept; ++k) {
    const int i = thread + k * threads;
    if (i >= groups) continue;
    kept[k] = __ldcg(x + i);
    for (const float value : {low(kept[k].x), high(kept[k].x), low(kept[k].y), high(kept[k].y)}) {
      sum = fmaf(value, value, sum);
    }
  }
  sum = sum_of_lanes(sum);
  if (thread % kLanes == 0) of_warps[thread / kLanes] = sum;
  __syncthreads();
  const int lane = thread % kLanes;
  const float all = sum_of_lanes(lane < threads / kLanes ? of_warps[lane] : 0.0F);
  const float factor = rsqrtf(all / static_cast<float>(job.width) + job.epsilon);
  const auto scaled = [&](unsigned values, unsigned weights) {
    const bf16 first = __float2bfloat16_rn(low(values) * factor * low(weights));
    const bf16 second = __float2bfloat16_rn(high(values) * factor * high(weights));
    return static_cast<unsigned>(__bfloat16_as_ushort(first)) |
           static_cast<unsigned>(__bfloat16_as_ushort(second)) << 16;
  };
#pragma unroll
  for (int k = 0; k < kMostKept; ++k) {
    const int i = thread + k * threads;
    if (i >= groups) continue;
    out[i] = {scaled(kept[k].x, factors[k].x), scaled(kept[k].y, factors[k].y)};
  }
}

}  // namespace

bool serves_norm_of(std::int64_t width) {
  return width % kEach == 0 && width <= kMostThreads * kEach * kMostKept;
}

cudaError_t normalise_rows(const RmsNorm& job, cudaStream_t stream) {
  if (job.rows == 0 || job.width == 0) return cudaSuccess;
  int threads = kLanes;
  while (threads < kMostThreads && threads * kEach < job.width) threads *= 2;
  return start(rms_norm, job, dim3(static_cast<unsigned>(job.rows)), threads, 0, stream);
}

}  // namespace haul::kernels::cuda
