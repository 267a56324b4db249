#pragma once

// Products of BF16 or F16 with many rows, as prompts ask for, on CPUs that have no instructions for
// them. There torch's take several times as long as those of float32, and fifty times where the
// weight lies by input. Here a weight becomes float32 a piece at a time, which stays in caches
// until it is multiplied.

#include <ATen/core/Tensor.h>

#include "kernels/few_rows.h"

namespace haul::kernels {

// Whether many_rows() is the way to multiply these on this CPU.
bool are_many_rows(const at::Tensor& x);

// x (…, in) times weight, and bias (out) added where it is defined; sums are float32 until then.
// Tensors of one such dtype on the CPU. REQUIRES: sizes that go together.
at::Tensor many_rows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                     Lies lies = Lies::kByOutput);

}  // namespace haul::kernels
