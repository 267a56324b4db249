#pragma once

// Products of few vectors with rows of weights, as decoding needs them: every weight is read once,
// at the speed of the memory. Every dot product is summed in float32, in the same order however
// many there are, and rounded where separate operators would round: after a norm of the vectors as
// well.

#include <cstddef>
#include <type_traits>

#include <driver_types.h>

#include "kernels/cuda/norm.h"
#include "kernels/cuda/numbers.h"
#include "kernels/row_math.h"

namespace haul::kernels::cuda {

constexpr int kFewVectors = 4;
constexpr int kMostWeights = 3;

// Starts the kernel that is made for so many vectors: run(std::integral_constant<int, N>).
template <int kVectors = kFewVectors, typename Run>
cudaError_t for_vectors(int vectors, const Run& run) {
  if (vectors == kVectors) return run(std::integral_constant<int, kVectors>());
  if constexpr (kVectors > 1) return for_vectors<kVectors - 1>(vectors, run);
  return cudaErrorInvalidValue;
}

// A weight (rows, width) and its products (vectors, rows).
struct Rows {
  const void* weight = nullptr;
  const void* bias = nullptr;  // or none
  void* out = nullptr;
  int rows = 0;
};

struct FewRows {
  Numbers numbers = Numbers::kBF16;
  const void* x = nullptr;  // (vectors, width)
  int vectors = 0;
  int width = 0;
  NormBy norm = {};            // without a weight x is multiplied as it is
  Rows weights[kMostWeights];  // one after another, of one width
  int count = 0;
  // Of a single weight: added to the products, (vectors, rows).
  const void* residual = nullptr;
  // Of a single weight: what its products are multiplied with, once it has gone through the curve.
  const void* gate = nullptr;
  // Of two: the first one's products are the second one's gate, and only those have an `out`.
  bool gates = false;
  Curve curve = Curve::kSilu;
  bool curves = false;  // what comes out goes through the curve; with neither gate nor residual
};

// Whether vectors of this width can be served, and normalised first where there is a norm.
bool serves_width(Numbers numbers, std::size_t width, int vectors, const NormBy& norm = {});
cudaError_t multiply_few_rows(const FewRows& job, cudaStream_t stream);

}  // namespace haul::kernels::cuda
