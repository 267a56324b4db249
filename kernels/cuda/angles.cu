#include <algorithm>

#include "kernels/cuda/angles.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"

namespace haul::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr std::int64_t kMostBlocks = 1 << 16;

template <typename T>
__global__ void __launch_bounds__(kThreads) angles(const __grid_constant__ Angles job) {
  let_next_begin();
  const std::int64_t total = job.count * job.size;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  after_previous();
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < total;
       i += step) {
    const std::int64_t token = i / job.size;
    const std::int64_t at = i % job.size;
    const float angle = static_cast<float>(__ldcg(job.positions + token)) * job.speeds[at];
    T* const cosine = static_cast<T*>(job.cosine) + token * 2 * job.size + at;
    T* const sine = static_cast<T*>(job.sine) + token * 2 * job.size + at;
    cosine[0] = cosine[job.size] = as_number<T>(cosf(angle) * job.factor);
    sine[0] = sine[job.size] = as_number<T>(sinf(angle) * job.factor);
  }
}

}  // namespace

cudaError_t find_angles(const Angles& job, cudaStream_t stream) {
  const std::int64_t blocks = (job.count * job.size + kThreads - 1) / kThreads;
  if (blocks == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(std::min(blocks, kMostBlocks)));
  return for_numbers(job.numbers, [&](auto number) {
    return start(angles<decltype(number)>, job, grid, kThreads, 0, stream);
  });
}

}  // namespace haul::kernels::cuda
