#pragma once

// Products of a weight with a few rows, which is what decoding asks for, and what follows them in
// the same go: at the speed of memory.

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "kernels/row_math.h"

namespace haul::kernels {

// What follows a product, in this order, where it is defined: bias (out) and residual (…, out) are
// added, and all is multiplied with curve(gate), gate (…, out).
struct Finish {
  at::Tensor bias, residual, gate;
  Curve curve = Curve::kSilu;
};

bool are_few_rows(const at::Tensor& x);

// How a weight lies.
enum class Lies : std::uint8_t {
  kByOutput,  // (out, in)
  kByInput,   // (in, out)
};

// x (…, in) times weight, finished. Tensors of one dtype, F32, BF16 or F16, on the CPU.
// REQUIRES: are_few_rows(x).
at::Tensor few_rows(const at::Tensor& x, const at::Tensor& weight, const Finish& finish,
                    Lies lies = Lies::kByOutput);

}  // namespace haul::kernels
