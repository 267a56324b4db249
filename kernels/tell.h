#pragma once

// The end of a pass that goes on with its own tokens before the host has seen them.

#include <ATen/core/Tensor.h>

namespace haul::kernels {

// Of a pass whose tokens are ids (B) and which has `past`, one number, before it: leaves the ids in
// told (slots, B), contiguous, in the slot of that number, from 0 again behind the last one. Then
// there is one more before the next. `told` is the host's, pinned where a GPU tells: who waits for
// the pass may read it. By the operator haul::tell on GPUs.
void tell(const at::Tensor& ids, at::Tensor& past, at::Tensor& told);
void plain_tell(const at::Tensor& ids, at::Tensor& past, at::Tensor& told);

}  // namespace haul::kernels
