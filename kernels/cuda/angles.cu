#include <algorithm>

#include "kernels/cuda/angles.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"

namespace haul::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr std::int64_t kMostBlocks = 1 << 16;

__device__ void put(bf16* to, float value) {
  *to = __float2bfloat16_rn(value);
}
__device__ void put(float* to, float value) {
  *to = value;
}

template <typename T>
__global__ void __launch_bounds__(kThreads) angles(const __grid_constant__ Angles<T> job) {
  let_next_begin();
  const std::int64_t total = job.count * job.size;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  after_previous();
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < total;
       i += step) {
    const std::int64_t token = i / job.size;
    const std::int64_t at = i % job.size;
    const float angle = static_cast<float>(__ldcg(job.positions + token)) * job.speeds[at];
    const float cosine = cosf(angle) * job.factor;
    const float sine = sinf(angle) * job.factor;
    for (const std::int64_t to : {at, at + job.size}) {
      put(job.cosine + token * 2 * job.size + to, cosine);
      put(job.sine + token * 2 * job.size + to, sine);
    }
  }
}

}  // namespace

template <typename T>
cudaError_t find_angles(const Angles<T>& job, cudaStream_t stream) {
  const std::int64_t blocks = (job.count * job.size + kThreads - 1) / kThreads;
  if (blocks == 0) return cudaSuccess;
  return start(angles<T>, job, dim3(static_cast<unsigned>(std::min(blocks, kMostBlocks))), kThreads,
               0, stream);
}

template cudaError_t find_angles(const Angles<bf16>& job, cudaStream_t stream);
template cudaError_t find_angles(const Angles<float>& job, cudaStream_t stream);

}  // namespace haul::kernels::cuda
