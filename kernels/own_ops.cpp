#include "kernels/own_ops.h"

#include <ATen/core/grad_mode.h>

namespace haul::kernels {

bool has_own_ops(at::Device device, at::ScalarType type) {
  if (type != at::kFloat && type != at::kBFloat16 && type != at::kHalf) return false;
  if (device.is_cpu()) return true;
  static const bool on_gpus = c10::Dispatcher::singleton()
                                  .findSchemaOrThrow("haul::linear", "")
                                  .hasKernelForDispatchKey(c10::DispatchKey::CUDA);
  return device.is_cuda() && on_gpus;
}

bool are_alike(std::initializer_list<const at::Tensor*> tensors) {
  const at::Tensor& first = **tensors.begin();
  const bool gradients = at::GradMode::is_enabled();
  for (const at::Tensor* const tensor : tensors) {
    if (!tensor->defined()) continue;
    if (tensor->device() != first.device()) return false;
    if (tensor->scalar_type() != first.scalar_type()) return false;
    if (gradients && tensor->requires_grad()) return false;
  }
  return first.numel() > 0;
}

bool has_own_ops(std::initializer_list<const at::Tensor*> tensors) {
  const at::Tensor& first = **tensors.begin();
  return has_own_ops(first.device(), first.scalar_type()) && are_alike(tensors);
}

bool lies_elsewhere(const at::Tensor& tensor) {
  return tensor.defined() && tensor.key_set().has(c10::DispatchKey::Fake);
}

at::Tensor as_floats(const at::Tensor& x) {
  if (x.scalar_type() == at::kFloat && x.is_contiguous()) return x;
  return x.to(at::kFloat).contiguous();
}

}  // namespace haul::kernels
