#pragma once

// Products of few vectors with a weight that lies by input, as GPT-2 stores it: a row for each
// input. Summed in float32, rounded where separate operators would round.

#include <cstddef>

#include <driver_types.h>

#include "kernels/cuda/norm.h"
#include "kernels/cuda/numbers.h"
#include "kernels/row_math.h"

namespace haul::kernels::cuda {

struct Columns {
  Numbers numbers = Numbers::kBF16;
  const void* x = nullptr;  // (vectors, width)
  int vectors = 0;
  int width = 0;
  const void* weight = nullptr;  // (width, columns)
  int columns = 0;
  const void* bias = nullptr;      // (columns), or none
  const void* residual = nullptr;  // (vectors, columns), added, or none
  bool curves = false;             // what comes out goes through the curve
  Curve curve = Curve::kSilu;
  void* out = nullptr;  // (vectors, columns)
  NormBy norm = {};     // without a weight x is multiplied as it is
};

// Whether a weight of this shape can be multiplied with so many vectors, normalised first where
// there is a norm.
bool serves_columns(Numbers numbers, std::size_t width, std::size_t columns, int vectors,
                    const NormBy& norm = {});
cudaError_t multiply_columns(const Columns& job, cudaStream_t stream);

}  // namespace haul::kernels::cuda
