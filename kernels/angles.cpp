#include "kernels/angles.h"

#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <torch/library.h>

#include "kernels/own_ops.h"

namespace haul::kernels {
namespace {

TORCH_LIBRARY_FRAGMENT(haul, library) {
  library.def(
      "angles(Tensor positions, Tensor speeds, float factor, ScalarType dtype) -> "
      "(Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(haul, Autograd, library) {
  library.impl("angles", torch::CppFunction::makeFallthrough());
}

bool serves(const at::Tensor& positions, const at::Tensor& speeds, at::ScalarType dtype) {
  return positions.is_cuda() && has_own_ops(positions.device(), dtype) &&
         speeds.device() == positions.device() && positions.scalar_type() == at::kLong &&
         speeds.scalar_type() == at::kFloat && !lies_elsewhere(positions) &&
         !lies_elsewhere(speeds) && positions.numel() > 0;
}

}  // namespace

Angles angles(const at::Tensor& positions, const at::Tensor& speeds, double factor,
              at::ScalarType dtype) {
  if (!serves(positions, speeds, dtype)) return plain_angles(positions, speeds, factor, dtype);
  using Both = std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&, double,
                                                  at::ScalarType);
  static const auto op = own_op<Both>("haul::angles");
  auto [cosine, sine] = op.call(positions, speeds, factor, dtype);
  return {cosine, sine};
}

Angles plain_angles(const at::Tensor& positions, const at::Tensor& speeds, double factor,
                    at::ScalarType dtype) {
  const at::Tensor each = positions.unsqueeze(-1).to(at::kFloat) * speeds.to(positions.device());
  const at::Tensor both = at::cat({each, each}, -1);
  const auto finished = [&](at::Tensor values) {
    if (factor != 1) values = values.mul_(factor);
    return values.to(dtype);
  };
  return {finished(both.cos()), finished(both.sin())};
}

}  // namespace haul::kernels
