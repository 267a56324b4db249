#include "kernels/cuda/norm.cuh"

namespace haul::kernels::cuda {
namespace {

constexpr std::int64_t kMostBytes = 32 << 10;  // of a row

// A row a block.
template <typename T>
__global__ void __launch_bounds__(kNormThreads) normalise_each(const __grid_constant__ Norm job) {
  const int chunks = job.width / kWide<T>;
  uint4* const row = dynamic_shared();
  uint4* const memory = row + chunks;
  let_next_begin();
  const std::size_t begin = static_cast<std::size_t>(blockIdx.x) * static_cast<std::size_t>(chunks);
  fetch_norm(job.by, chunks, memory);
  after_previous();
  float sums[1] = {};
  take_rows<T>(job.by, static_cast<const uint4*>(job.x) + begin, chunks, row, sums);
  normalise<T, 0>(job.by, chunks, memory, row, sums);
  auto* const out = static_cast<uint4*>(job.out) + begin;
  for_own_chunks(chunks, [&](int i) { out[i] = row[i]; });
}

template <typename T>
cudaError_t start_for(const Norm& job, cudaStream_t stream) {
  int threads = kLanes;
  while (threads < kNormThreads && threads * kWide<T> < job.width) threads *= 2;
  const auto width = static_cast<std::size_t>(job.width);
  const std::size_t shared = width * sizeof(T) + bytes_for_norm<T>(job.by, width, 1);
  return start(normalise_each<T>, job, dim3(static_cast<unsigned>(job.rows)), threads, shared,
               stream);
}

}  // namespace

bool serves_norm_of(Numbers numbers, std::int64_t width) {
  return for_numbers(numbers, [&](auto number) {
    return width % kWide<decltype(number)> == 0 &&
           width * static_cast<std::int64_t>(sizeof(number)) <= kMostBytes;
  });
}

cudaError_t normalise_rows(const Norm& job, cudaStream_t stream) {
  if (job.rows == 0 || job.width == 0) return cudaSuccess;
  return for_numbers(job.numbers,
                     [&](auto number) { return start_for<decltype(number)>(job, stream); });
}

}  // namespace haul::kernels::cuda
