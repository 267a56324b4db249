#pragma once

// Rows of a matrix in host memory times a few vectors, over all threads of torch's pool. Pure.

#include <c10/core/ScalarType.h>

#include "kernels/row_products.h"

namespace haul::kernels {

// Whether products of such weights are known.
bool has_host_rows(c10::ScalarType type);

struct HostRows {
  c10::ScalarType type = c10::ScalarType::Float;
  const void* matrix = nullptr;  // `count` rows of `width` elements
  std::int64_t width = 0;
  std::int64_t count = 0;
};

// out[v * count + r] = row r times vectors[v * width …], rounded to the matrix's type, for
// v < vector_count <= kMostVectors.
void multiply_host_rows(const HostRows& rows, const float* vectors, std::int64_t vector_count,
                        void* out);

}  // namespace haul::kernels
