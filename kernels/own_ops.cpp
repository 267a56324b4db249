#include "kernels/own_ops.h"

#include <ATen/core/grad_mode.h>

namespace haul::kernels {

bool has_own_ops(std::initializer_list<const at::Tensor*> tensors) {
  const at::ScalarType type = (*tensors.begin())->scalar_type();
  if (type != at::kFloat && type != at::kBFloat16) return false;
  const bool gradients = at::GradMode::is_enabled();
  for (const at::Tensor* const tensor : tensors) {
    if (!tensor->defined()) continue;
    if (!tensor->is_cpu() || tensor->scalar_type() != type) return false;
    if (gradients && tensor->requires_grad()) return false;
  }
  return (*tensors.begin())->numel() > 0;
}

at::Tensor as_floats(const at::Tensor& x) {
  if (x.scalar_type() == at::kFloat && x.is_contiguous()) return x;
  return x.to(at::kFloat).contiguous();
}

}  // namespace haul::kernels
