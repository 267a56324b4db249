#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "haul/error.h"
#include "runtime/tiers/gpu.h"

namespace haul::runtime {
namespace {

void check(cudaError_t code, int index) {
  if (code == cudaSuccess) return;
  throw Error(ErrorKind::kResource, fmt::format("GPU {}: {}", index, cudaGetErrorString(code)));
}

}  // namespace

bool built_for_gpus() {
  return true;
}

std::vector<Gpu> gpus() {
  int count = 0;
  // A machine without a GPU or driver answers with an error: it has none.
  if (cudaGetDeviceCount(&count) != cudaSuccess) return {};
  int before = 0;
  check(cudaGetDevice(&before), 0);
  std::vector<Gpu> result;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, i), i);
    check(cudaSetDevice(i), i);
    std::size_t free = 0;
    std::size_t total = 0;
    check(cudaMemGetInfo(&free, &total), i);
    result.push_back({i, properties.name, total, free});
  }
  check(cudaSetDevice(before), before);
  return result;
}

}  // namespace haul::runtime
