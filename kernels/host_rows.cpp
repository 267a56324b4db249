#include "kernels/host_rows.h"

#include <algorithm>
#include <array>
#include <atomic>

#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>

namespace haul::kernels {
namespace {

constexpr std::int64_t kAtOnce = 32;  // rows whose products stay in the first cache

template <typename T>
void multiply(const HostRows& rows, WeightType type, const float* vectors, std::int64_t count,
              T* out) {
  // Threads take groups of rows as they come to it: some share their core with what drives the GPU.
  std::atomic<std::int64_t> taken = 0;
  at::parallel_for(0, std::max(1, at::get_num_threads()), 1, [&](std::int64_t, std::int64_t) {
    std::array<float, kAtOnce * kMostVectors> sums;
    for (std::int64_t first = 0; (first = taken.fetch_add(kAtOnce)) < rows.count;) {
      const std::int64_t last = std::min(first + kAtOnce, rows.count);
      // The products land at [v * kAtOnce + row - first].
      const auto* const matrix = static_cast<const T*>(rows.matrix) + first * rows.width;
      const Rows part{type, matrix, static_cast<std::size_t>(rows.width), 0,
                      static_cast<std::size_t>(last - first)};
      row_products(part, vectors, static_cast<std::size_t>(count), sums.data(), kAtOnce);
      for (std::int64_t v = 0; v < count; ++v) {
        for (std::int64_t r = first; r < last; ++r) {
          out[v * rows.count + r] =
              static_cast<T>(sums[static_cast<std::size_t>(v * kAtOnce + r - first)]);
        }
      }
    }
  });
}

}  // namespace

bool has_host_rows(c10::ScalarType type) {
  return type == c10::ScalarType::Float || type == c10::ScalarType::BFloat16;
}

void multiply_host_rows(const HostRows& rows, const float* vectors, std::int64_t vector_count,
                        void* out) {
  if (rows.type == c10::ScalarType::Float) {
    multiply(rows, WeightType::kF32, vectors, vector_count, static_cast<float*>(out));
  } else {
    multiply(rows, WeightType::kBF16, vectors, vector_count, static_cast<c10::BFloat16*>(out));
  }
}

}  // namespace haul::kernels
