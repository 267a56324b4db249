#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/rotate.h"
#include "kernels/cuda/turn.cuh"

namespace haul::kernels::cuda {
namespace {

constexpr int kMostThreads = 128;

// A block for each head of each token: those of the queries, of the keys, of the values.
template <typename T>
__global__ void __launch_bounds__(kMostThreads) rotate(const __grid_constant__ Rotate job) {
  let_next_begin();
  const std::int64_t token = static_cast<std::int64_t>(blockIdx.x) % job.tokens;
  const std::int64_t sequence = static_cast<std::int64_t>(blockIdx.x) / job.tokens;
  const std::int64_t place = token + (job.past == nullptr ? 0 : __ldcg(job.past));
  after_previous();
  int head = static_cast<int>(blockIdx.y);
  const T* from = nullptr;
  T* to = nullptr;
  int turning = job.turning;
  if (head < job.queries.heads) {
    from = row_of<const T>(job.queries, sequence, head, token);
    to = row_of<T>(job.turned, sequence, head, token);
  } else if ((head -= job.queries.heads) < job.keys.heads) {
    from = row_of<const T>(job.keys, sequence, head, token);
    to = row_of<T>(job.kept_keys, sequence, head, place);
  } else {
    head -= job.keys.heads;
    from = row_of<const T>(job.values, sequence, head, token);
    to = row_of<T>(job.kept_values, sequence, head, place);
    turning = 0;
  }
  const std::int64_t angle = sequence * job.of_batch + token * job.turning;
  const auto* const cosine = static_cast<const T*>(job.cosine) + angle;
  const auto* const sine = static_cast<const T*>(job.sine) + angle;
  for (int i = static_cast<int>(threadIdx.x); i < job.size; i += static_cast<int>(blockDim.x)) {
    to[i] = Turn<T>(i, turning, cosine, sine)(from);
  }
}

}  // namespace

cudaError_t rotate_into(const Rotate& job, cudaStream_t stream) {
  if (job.batch == 0 || job.tokens == 0) return cudaSuccess;
  int threads = kLanes;
  while (threads < kMostThreads && threads < job.size) threads *= 2;
  const dim3 grid(static_cast<unsigned>(job.batch * job.tokens),
                  static_cast<unsigned>(job.queries.heads + 2 * job.keys.heads));
  return for_numbers(job.numbers, [&](auto number) {
    return start(rotate<decltype(number)>, job, grid, threads, 0, stream);
  });
}

}  // namespace haul::kernels::cuda
