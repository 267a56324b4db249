#include "runtime/dispatch/memory_copies.h"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>

#include "runtime/dispatch/interception.h"
#include "runtime/dispatch/weight_store.h"

namespace haul::runtime {

at::Tensor MemoryCopies::copy_of(const at::Tensor& tensor, c10::Device device) {
  const at::NoGradGuard no_gradients;
  const c10::InferenceMode same_kind(tensor.is_inference());
  const c10::Storage& old = tensor.storage();
  auto [entry, is_new] = copies_.try_emplace(old.unsafeGetStorageImpl());
  if (is_new) {
    Copy& copy = entry->second;
    copy.from = tensor_on(old, c10::kByte, {static_cast<std::int64_t>(old.nbytes())}, {1}, 0,
                          is_marked(tensor));
    // Not one like it, which would lie where the weight is used.
    copy.to = at::empty(copy.from.sizes(), at::TensorOptions(c10::kByte).device(device));
    copy.to.copy_(copy.from);
  }
  return tensor_on(entry->second.to.storage(), tensor.scalar_type(), tensor.sizes(),
                   tensor.strides(), tensor.storage_offset(), false);
}

void make_ordinary(const std::vector<at::Tensor>& tensors, c10::Device device) {
  MemoryCopies copies;
  std::vector<std::pair<at::Tensor, at::Tensor>> changes;
  for (const at::Tensor& tensor : tensors) {
    const Weight* const weight = find_weight(tensor);
    if (weight == nullptr) continue;
    weight->store->forget_left();
    changes.emplace_back(tensor, copies.copy_of(tensor, device));
  }
  for (const auto& [tensor, ordinary] : changes) become(tensor, ordinary);
}

void become(const at::Tensor& tensor, const at::Tensor& other) {
  tensor.unsafeGetTensorImpl()->shallow_copy_from(other.getIntrusivePtr());
}

}  // namespace haul::runtime
