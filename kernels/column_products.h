#pragma once

// Products of a matrix's columns, or of a part of each, with a few vectors, where it lies row by
// row: what a linear layer does whose weight lies the other way round. Every element is read once,
// in the order of memory. Pure; each result depends on its column and vector alone, whatever else
// is computed beside it.

#include <cstddef>

#include "kernels/row_products.h"

namespace haul::kernels {

// columns [begin, end), of their elements those in rows [top, bottom), of a matrix of `height` rows
// with `width` elements each.
struct Columns {
  WeightType type = WeightType::kF32;
  const void* matrix = nullptr;
  std::size_t height = 0;
  std::size_t width = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t top = 0;
  std::size_t bottom = 0;
};

// out[v * stride + c] = what there is of column c times the same part of vectors[v * height …], for
// v < count <= kFewVectors. Sums are float32.
void column_products(const Columns& columns, const float* vectors, std::size_t count, float* out,
                     std::size_t stride);

}  // namespace haul::kernels
