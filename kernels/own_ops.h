#pragma once

// When haul's own operators serve. Each is an operator of the dispatcher, so that a weight which
// lies elsewhere comes as it does for any other, and stands beside its plain twin of torch's ops,
// which computes the rest: other devices and dtypes, and whatever needs a gradient. An operator
// takes one weight at most, because a plan has room for one at a time, or serves only where none of
// its weights lies elsewhere.

#include <initializer_list>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace haul::kernels {

// Whether there are operators for the dtype there: for F32, BF16 and F16, and on GPUs where the
// CUDA part is built.
bool has_own_ops(at::Device device, at::ScalarType type);
// Whether they are of one device and of one dtype, and no gradient is asked for. Undefined ones do
// not count.
bool are_alike(std::initializer_list<const at::Tensor*> tensors);
// Both.
bool has_own_ops(std::initializer_list<const at::Tensor*> tensors);

// Whether an op on this tensor has to fetch it first.
bool lies_elsewhere(const at::Tensor& tensor);

// The operator of that name, whose C++ signature is `Signature`.
template <typename Signature>
c10::TypedOperatorHandle<Signature> own_op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

// As float32 and contiguous; itself if it is.
at::Tensor as_floats(const at::Tensor& x);

}  // namespace haul::kernels
