#include "kernels/likeliest.h"

#include <ATen/ops/argmax.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "kernels/own_ops.h"

namespace haul::kernels {
namespace {

TORCH_LIBRARY_FRAGMENT(haul, library) {
  library.def("likeliest_into(Tensor scores, Tensor(a!) ids) -> ()");
}
TORCH_LIBRARY_IMPL(haul, Autograd, library) {
  library.impl("likeliest_into", torch::CppFunction::makeFallthrough());
}

bool serves(const at::Tensor& scores) {
  return scores.is_cuda() && has_own_ops({&scores});
}

}  // namespace

at::Tensor likeliest(const at::Tensor& scores) {
  if (!serves(scores)) return at::argmax(scores, 1);
  at::Tensor ids = at::empty({scores.size(0)}, scores.options().dtype(at::kLong));
  likeliest_into(scores, ids);
  return ids;
}

void likeliest_into(const at::Tensor& scores, at::Tensor& ids) {
  if (!serves(scores)) {
    ids.copy_(at::argmax(scores, 1));
    return;
  }
  static const auto op = own_op<void(const at::Tensor&, at::Tensor&)>("haul::likeliest_into");
  op.call(scores, ids);
}

}  // namespace haul::kernels
