#include "kernels/cuda/norm.cuh"

namespace haul::kernels::cuda {
namespace {

constexpr std::int64_t kMostWidth = 16384;

// A row a block.
__global__ void __launch_bounds__(kNormThreads) normalise_each(const __grid_constant__ Norm job) {
  const int chunks = job.width / kWide;
  uint4* const row = dynamic_shared();
  uint4* const memory = row + chunks;
  let_next_begin();
  const std::size_t begin = static_cast<std::size_t>(blockIdx.x) * static_cast<std::size_t>(chunks);
  fetch_norm(job.by, chunks, memory);
  after_previous();
  normalise<1>(job.by, reinterpret_cast<const uint4*>(job.x) + begin, chunks, memory, row);
  auto* const out = reinterpret_cast<uint4*>(job.out) + begin;
  for_own_chunks(chunks, [&](int i) { out[i] = row[i]; });
}

std::size_t shared_for(const NormBy& by, std::size_t width) {
  return width * sizeof(bf16) + bytes_for_norm(by, width, 1);
}

}  // namespace

bool serves_norm_of(std::int64_t width) {
  return width % kWide == 0 && width <= kMostWidth;
}

cudaError_t normalise_rows(const Norm& job, cudaStream_t stream) {
  if (job.rows == 0 || job.width == 0) return cudaSuccess;
  int threads = kLanes;
  while (threads < kNormThreads && threads * kWide < job.width) threads *= 2;
  const std::size_t shared = shared_for(job.by, static_cast<std::size_t>(job.width));
  return start(normalise_each, job, dim3(static_cast<unsigned>(job.rows)), threads, shared, stream);
}

}  // namespace haul::kernels::cuda
