#pragma once

// Products of a matrix's rows with a few vectors: what a linear layer does when it decodes. Every
// element of the matrix comes from memory once, which is the limit. Pure; each result depends on
// its row and vector alone, whatever else is computed beside it.

#include <cstddef>
#include <cstdint>

namespace haul::kernels {

enum class WeightType : std::uint8_t { kF32, kBF16, kF16 };

inline constexpr std::size_t kFewVectors = 4;
inline constexpr std::size_t kMostVectors = 32;

// rows [begin, end) of a matrix with `width` elements a row.
struct Rows {
  WeightType type = WeightType::kF32;
  const void* matrix = nullptr;
  std::size_t width = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
  bool arranged = false;  // of BF16: the vectors are as arrange() has them
  // An element is multiplied with several vectors while it is there, which is faster for them. Sums
  // are added in another order then.
  bool together = false;
};

// out[v * stride + r] = row r times vectors[v * width …], for v < count <= kMostVectors. Sums are
// float32.
void row_products(const Rows& rows, const float* vectors, std::size_t count, float* out,
                  std::size_t stride);

// The vectors in the order in which this CPU multiplies them fastest with BF16. `out`, another
// place, has as many numbers.
void arrange(const float* vectors, std::size_t width, std::size_t count, float* out);

}  // namespace haul::kernels
