#include "kernels/host_rows.h"

#include <algorithm>
#include <array>
#include <atomic>

#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>

namespace haul::kernels {
namespace {

constexpr std::int64_t kAtOnce = 32;  // rows whose products stay in the first cache

std::int64_t groups_of(const HostRows& rows) {
  return (rows.count + kAtOnce - 1) / kAtOnce;
}

template <typename T>
void multiply_group(const HostRows& rows, WeightType type, std::int64_t group, const float* vectors,
                    std::int64_t count) {
  std::array<float, kAtOnce * kMostVectors> sums;  // at [v * kAtOnce + row - first]
  const std::int64_t first = group * kAtOnce;
  const std::int64_t last = std::min(first + kAtOnce, rows.count);
  const auto* const matrix = static_cast<const T*>(rows.matrix) + first * rows.width;
  const Rows part{type, matrix, static_cast<std::size_t>(rows.width), 0,
                  static_cast<std::size_t>(last - first)};
  row_products(part, vectors, static_cast<std::size_t>(count), sums.data(), kAtOnce);
  auto* const out = static_cast<T*>(rows.out);
  for (std::int64_t v = 0; v < count; ++v) {
    for (std::int64_t r = first; r < last; ++r) {
      out[v * rows.count + r] =
          static_cast<T>(sums[static_cast<std::size_t>(v * kAtOnce + r - first)]);
    }
  }
}

template <typename T>
void multiply(std::span<const HostRows> matrices, WeightType type, const float* vectors,
              std::int64_t count) {
  // Threads take groups of rows as they come to it: cores have other work, too.
  std::atomic<std::int64_t> taken = 0;
  at::parallel_for(0, std::max(1, at::get_num_threads() - 1), 1, [&](std::int64_t, std::int64_t) {
    std::int64_t before = 0;  // groups of the matrices that are behind this thread
    std::size_t i = 0;
    for (;;) {
      const std::int64_t group = taken.fetch_add(1);
      while (i < matrices.size() && group - before >= groups_of(matrices[i])) {
        before += groups_of(matrices[i++]);
      }
      if (i == matrices.size()) return;
      multiply_group<T>(matrices[i], type, group - before, vectors, count);
    }
  });
}

}  // namespace

bool has_host_rows(c10::ScalarType type) {
  return type == c10::ScalarType::Float || type == c10::ScalarType::BFloat16;
}

void multiply_host_rows(std::span<const HostRows> matrices, const float* vectors,
                        std::int64_t vector_count) {
  if (matrices.front().type == c10::ScalarType::Float) {
    multiply<float>(matrices, WeightType::kF32, vectors, vector_count);
  } else {
    multiply<c10::BFloat16>(matrices, WeightType::kBF16, vectors, vector_count);
  }
}

}  // namespace haul::kernels
