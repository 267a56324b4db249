#pragma once

// Rows of matrices in host memory times a few vectors, while a GPU works: in pieces, for threads
// that take one after the other. Pure.

#include <cstddef>
#include <cstdint>
#include <vector>

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
  void* out = nullptr;  // vector_count * count elements of the same type
};

// out[v * count + r] = row r times vectors[v * width …], rounded to the matrix's type, for
// v < vector_count <= kMostVectors; of each matrix. One vector alone is summed in another order
// than several. REQUIRES: one type and one width.
class HostProducts {
 public:
  HostProducts(std::vector<HostRows> matrices, const float* vectors, std::int64_t vector_count);

  std::size_t pieces() const { return pieces_; }
  // May be called for several pieces at once.
  void multiply(std::size_t piece) const;

 private:
  std::vector<HostRows> matrices_;
  const float* vectors_;
  std::int64_t vector_count_;
  std::int64_t rows_;  // of a piece
  std::size_t pieces_ = 0;
};

}  // namespace haul::kernels
