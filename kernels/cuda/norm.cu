#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/numbers.cuh"

namespace haul::kernels::cuda {
namespace {

constexpr int kMostThreads = 1024;
constexpr int kEach = 4;      // numbers that a thread takes at once
constexpr int kMostKept = 4;  // times that, in registers

// The sum over all threads of a block, in each of them.
__device__ float sum_of_block(float value, float* of_warps) {
  const int thread = static_cast<int>(threadIdx.x);
  value = sum_of_lanes(value);
  if (thread % kLanes == 0) of_warps[thread / kLanes] = value;
  __syncthreads();
  const int lane = thread % kLanes;
  return sum_of_lanes(lane < static_cast<int>(blockDim.x) / kLanes ? of_warps[lane] : 0.0F);
}

// A row a block, in kEach numbers at a time.
template <bool kCentred>
__global__ void __launch_bounds__(kMostThreads) normalise(const __grid_constant__ Norm job) {
  __shared__ float of_warps[2][kMostThreads / kLanes];
  let_next_begin();
  const int threads = static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.x);
  const std::size_t begin = static_cast<std::size_t>(blockIdx.x) * static_cast<unsigned>(job.width);
  const int groups = job.width / kEach;
  const auto* const x = reinterpret_cast<const uint2*>(job.x + begin);
  const auto* const weight = reinterpret_cast<const uint2*>(job.weight);
  const auto* const bias = reinterpret_cast<const uint2*>(job.bias);
  auto* const out = reinterpret_cast<uint2*>(job.out + begin);
  uint2 factors[kMostKept], added[kMostKept];
#pragma unroll
  for (int k = 0; k < kMostKept; ++k) {
    const int i = thread + k * threads;
    if (i >= groups) continue;
    factors[k] = weight[i];
    if (kCentred) added[k] = bias[i];
  }
  after_previous();
  float kept[kMostKept][kEach] = {};
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kMostKept; ++k) {
    const int i = thread + k * threads;
    if (i >= groups) continue;
    const uint2 values = __ldcg(x + i);
    kept[k][0] = low(values.x);
    kept[k][1] = high(values.x);
    kept[k][2] = low(values.y);
    kept[k][3] = high(values.y);
    for (const float value : kept[k]) sum += value;
  }
  const auto width = static_cast<float>(job.width);
  const float mean = kCentred ? sum_of_block(sum, of_warps[0]) / width : 0.0F;
  float squares = 0;
#pragma unroll
  for (int k = 0; k < kMostKept; ++k) {
    if (thread + k * threads >= groups) continue;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      kept[k][j] -= mean;
      squares = fmaf(kept[k][j], kept[k][j], squares);
    }
  }
  const float factor = rsqrtf(sum_of_block(squares, of_warps[1]) / width + job.epsilon);
  const auto both = [](float first, float second) {
    return static_cast<unsigned>(__bfloat16_as_ushort(__float2bfloat16_rn(first))) |
           static_cast<unsigned>(__bfloat16_as_ushort(__float2bfloat16_rn(second))) << 16;
  };
#pragma unroll
  for (int k = 0; k < kMostKept; ++k) {
    const int i = thread + k * threads;
    if (i >= groups) continue;
    const uint2 w = factors[k];
    const uint2 b = kCentred ? added[k] : uint2{0, 0};
    out[i] = {both(kept[k][0] * factor * low(w.x) + low(b.x),
                   kept[k][1] * factor * high(w.x) + high(b.x)),
              both(kept[k][2] * factor * low(w.y) + low(b.y),
                   kept[k][3] * factor * high(w.y) + high(b.y))};
  }
}

}  // namespace

bool serves_norm_of(std::int64_t width) {
  return width % kEach == 0 && width <= kMostThreads * kEach * kMostKept;
}

cudaError_t normalise_rows(const Norm& job, cudaStream_t stream) {
  if (job.rows == 0 || job.width == 0) return cudaSuccess;
  int threads = kLanes;
  while (threads < kMostThreads && threads * kEach < job.width) threads *= 2;
  return start(job.bias == nullptr ? normalise<false> : normalise<true>, job,
               dim3(static_cast<unsigned>(job.rows)), threads, 0, stream);
}

}  // namespace haul::kernels::cuda
