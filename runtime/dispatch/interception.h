#pragma once

// The one place that ops on weights of a dispatched model pass through. A marked tensor carries a
// dispatch key of its own; ops that touch none never come here. See interception.cpp.

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/Storage.h>

namespace haul::runtime {

inline constexpr c10::DispatchKey kMark = c10::DispatchKey::Fake;

inline bool is_marked(const at::Tensor& tensor) {
  return tensor.defined() && tensor.key_set().has(kMark);
}

// A tensor on the storage, which need not hold its bytes yet.
at::Tensor tensor_on(const c10::Storage& storage, c10::ScalarType type, c10::IntArrayRef sizes,
                     c10::IntArrayRef strides, std::int64_t offset, bool marked);

}  // namespace haul::runtime
