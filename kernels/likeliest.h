#pragma once

// The token that is chosen where nothing but likelihood counts.

#include <ATen/core/Tensor.h>

namespace haul::kernels {

// The place of the largest of each row's scores (B, V), the first of equal ones, as (B). By the
// operator haul::likeliest_into on GPUs where that serves.
at::Tensor likeliest(const at::Tensor& scores);
// The same into `ids` (B), contiguous.
void likeliest_into(const at::Tensor& scores, at::Tensor& ids);

}  // namespace haul::kernels
