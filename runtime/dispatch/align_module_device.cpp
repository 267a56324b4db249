#include "haul/torch/align_module_device.h"

#include <exception>
#include <unordered_set>
#include <vector>

#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include "haul/error.h"
#include "runtime/dispatch/interception.h"
#include "runtime/dispatch/memory_copies.h"
#include "runtime/dispatch/model_tensors.h"
#include "runtime/dispatch/weight_store.h"

namespace haul {
namespace {

using runtime::MemoryCopies;

// The same tensor as another object, which stays when the first becomes something else.
at::Tensor alias_of(const at::Tensor& tensor) {
  const c10::InferenceMode same_kind(tensor.is_inference());
  return runtime::tensor_on(tensor.storage(), tensor.scalar_type(), tensor.sizes(),
                            tensor.strides(), tensor.storage_offset(), runtime::is_marked(tensor));
}

bool is_there(const at::Tensor& tensor, c10::Device device) {
  const runtime::Weight* const weight = runtime::find_weight(tensor);
  return tensor.device() == device && (weight == nullptr || weight->streamer == nullptr);
}

}  // namespace

struct AlignModuleDevice::State {
  struct Brought {
    at::Tensor tensor;  // the module's
    at::Tensor home;    // what it was
    at::Tensor here;    // what it is in the scope
  };
  std::vector<Brought> brought;
  MemoryCopies copies;
  int exceptions = std::uncaught_exceptions();

  void put_back() {
    const c10::InferenceMode no_gradients;
    std::vector<at::Tensor> last;
    for (const Brought& item : brought) {
      last.push_back(alias_of(item.tensor));
      runtime::become(item.tensor, item.home);
    }
    for (std::size_t i = 0; i < brought.size(); ++i) {
      const at::Tensor& here = brought[i].here;
      const bool same_memory =
          last[i].storage().unsafeGetStorageImpl() == here.storage().unsafeGetStorageImpl();
      if (!same_memory) here.copy_(last[i]);  // it was given other data
    }
    for (const auto& [storage, copy] : copies.all()) {
      if (!copy.from.equal(copy.to.to(copy.from.device()))) copy.from.copy_(copy.to);
    }
  }
};

AlignModuleDevice::AlignModuleDevice(const ModelRef& module, std::optional<c10::Device> device)
    : state_(std::make_unique<State>()) {
  if (device && device->is_cuda() && !device->has_index()) device->set_index(0);
  std::unordered_set<const void*> seen;
  for (const runtime::ModelTensor& item : runtime::read_model(module).all) {
    const at::Tensor& tensor = item.tensor;
    if (!seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    if (tensor.is_meta()) {
      throw Error(ErrorKind::kUsage, fmt::format("'{}' has no value yet", item.name),
                  "load a checkpoint into the model");
    }
    const c10::Device to = device ? *device : tensor.device();
    if (is_there(tensor, to)) continue;
    state_->brought.push_back({tensor, alias_of(tensor), state_->copies.copy_of(tensor, to)});
  }
  for (const State::Brought& item : state_->brought) runtime::become(item.tensor, item.here);
}

AlignModuleDevice::~AlignModuleDevice() noexcept(false) {
  try {
    state_->put_back();
  } catch (...) {
    if (std::uncaught_exceptions() == state_->exceptions) throw;
  }
}

}  // namespace haul
