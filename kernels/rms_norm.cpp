#include "kernels/rms_norm.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/rms_norm.h>
#include <torch/library.h>

#include "kernels/own_ops.h"
#include "kernels/row_math.h"

namespace haul::kernels {
namespace {

constexpr std::int64_t kPart = 1 << 14;  // numbers that are worth a thread

at::Tensor own_rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  const at::Tensor from = as_floats(x);
  const at::Tensor factors = as_floats(weight);
  at::Tensor out = at::empty(x.sizes(), from.options());
  const std::int64_t width = x.size(-1);
  const auto* const in = from.const_data_ptr<float>();
  auto* const to = out.mutable_data_ptr<float>();
  at::parallel_for(
      0, x.numel() / width, kPart / width + 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          normed_row(in + row * width, factors.const_data_ptr<float>(), static_cast<float>(epsilon),
                     static_cast<std::size_t>(width), to + row * width);
        }
      });
  return out.to(x.scalar_type());
}

TORCH_LIBRARY_FRAGMENT(haul, library) {
  library.def("rms_norm(Tensor x, Tensor weight, float epsilon) -> Tensor");
}
TORCH_LIBRARY_IMPL(haul, CPU, library) {
  library.impl("rms_norm", own_rms_norm);
}
TORCH_LIBRARY_IMPL(haul, Autograd, library) {
  library.impl("rms_norm", torch::CppFunction::makeFallthrough());
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  if (!has_own_ops({&x, &weight})) return plain_rms_norm(x, weight, epsilon);
  static const auto op = own_op<decltype(own_rms_norm)>("haul::rms_norm");
  return op.call(x, weight, epsilon);
}

at::Tensor plain_rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  if (x.scalar_type() == weight.scalar_type()) {
    return at::rms_norm(x, weight.sizes(), weight, epsilon);
  }
  return at::rms_norm(x, weight.sizes(), {}, epsilon).to(weight.scalar_type()) * weight;
}

}  // namespace haul::kernels
