#include "kernels/host_rows.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/weight_type.h"

namespace haul::kernels {
namespace {

// Some ten microseconds: threads that end together, and few of them waiting for the last.
constexpr std::int64_t kPieceBytes = 128 * 1024;
constexpr std::int64_t kMostRows = 32;  // whose products stay in the first cache

std::size_t pieces_of(const HostRows& rows, std::int64_t at_once) {
  return static_cast<std::size_t>((rows.count + at_once - 1) / at_once);
}

template <typename T>
void multiply_rows(const HostRows& rows, std::int64_t first, std::int64_t last,
                   const float* vectors, std::int64_t count) {
  std::array<float, kMostRows * kMostVectors> sums;  // at [v * kMostRows + row - first]
  const auto* const matrix = static_cast<const T*>(rows.matrix) + first * rows.width;
  const Rows part{.type = kWeightType<T>,
                  .matrix = matrix,
                  .width = static_cast<std::size_t>(rows.width),
                  .end = static_cast<std::size_t>(last - first),
                  .together = count > 1};
  row_products(part, vectors, static_cast<std::size_t>(count), sums.data(), kMostRows);
  auto* const out = static_cast<T*>(rows.out);
  for (std::int64_t v = 0; v < count; ++v) {
    for (std::int64_t r = first; r < last; ++r) {
      out[v * rows.count + r] =
          static_cast<T>(sums[static_cast<std::size_t>(v * kMostRows + r - first)]);
    }
  }
}

}  // namespace

bool has_host_rows(c10::ScalarType type) {
  return type == c10::ScalarType::Float || type == c10::ScalarType::BFloat16 ||
         type == c10::ScalarType::Half;
}

HostProducts::HostProducts(std::vector<HostRows> matrices, const float* vectors,
                           std::int64_t vector_count)
    : matrices_(std::move(matrices)), vectors_(vectors), vector_count_(vector_count) {
  const HostRows& first = matrices_.front();
  const auto row_bytes = first.width * static_cast<std::int64_t>(c10::elementSize(first.type));
  rows_ =
      std::clamp<std::int64_t>(kPieceBytes / std::max<std::int64_t>(1, row_bytes), 1, kMostRows);
  for (const HostRows& rows : matrices_) pieces_ += pieces_of(rows, rows_);
}

void HostProducts::multiply(std::size_t piece) const {
  auto rows = matrices_.begin();
  for (; piece >= pieces_of(*rows, rows_); ++rows) piece -= pieces_of(*rows, rows_);
  const std::int64_t first = static_cast<std::int64_t>(piece) * rows_;
  const std::int64_t last = std::min(first + rows_, rows->count);
  if (rows->type == c10::ScalarType::Float) {
    multiply_rows<float>(*rows, first, last, vectors_, vector_count_);
  } else if (rows->type == c10::ScalarType::Half) {
    multiply_rows<c10::Half>(*rows, first, last, vectors_, vector_count_);
  } else {
    multiply_rows<c10::BFloat16>(*rows, first, last, vectors_, vector_count_);
  }
}

}  // namespace haul::kernels
