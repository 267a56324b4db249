#include "kernels/likeliest.h"

#include <ATen/ops/argmax.h>
#include <torch/library.h>

#include "kernels/own_ops.h"

namespace haul::kernels {
namespace {

TORCH_LIBRARY_FRAGMENT(haul, library) {
  library.def("likeliest(Tensor scores) -> Tensor");
}
TORCH_LIBRARY_IMPL(haul, Autograd, library) {
  library.impl("likeliest", torch::CppFunction::makeFallthrough());
}

}  // namespace

at::Tensor likeliest(const at::Tensor& scores) {
  if (scores.is_cpu() || !has_own_ops({&scores})) return at::argmax(scores, 1);
  static const auto op = own_op<at::Tensor(const at::Tensor&)>("haul::likeliest");
  return op.call(scores);
}

}  // namespace haul::kernels
