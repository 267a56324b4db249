#include "kernels/cuda/curves.cuh"
#include "kernels/cuda/curves.h"
#include "kernels/cuda/launch.cuh"

namespace haul::kernels::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void __launch_bounds__(kThreads) through_curve(const __grid_constant__ Curves job) {
  let_next_begin();
  after_previous();
  const std::int64_t i =
      static_cast<std::int64_t>(blockIdx.x) * kThreads + static_cast<std::int64_t>(threadIdx.x);
  if (i >= job.count) return;
  const float value = as_float(fresh(static_cast<const T*>(job.x) + i));
  static_cast<T*>(job.out)[i] = as_number<T>(curved<T>(value, job.curve));
}

}  // namespace

cudaError_t curve_all(const Curves& job, cudaStream_t stream) {
  if (job.count == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>((job.count + kThreads - 1) / kThreads));
  return for_numbers(job.numbers, [&](auto number) {
    return start(through_curve<decltype(number)>, job, grid, kThreads, 0, stream);
  });
}

}  // namespace haul::kernels::cuda
