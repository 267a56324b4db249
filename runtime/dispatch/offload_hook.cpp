#include "haul/torch/offload_hook.h"

#include <utility>
#include <vector>

#include "runtime/dispatch/memory_copies.h"
#include "runtime/dispatch/memory_source.h"
#include "runtime/dispatch/model_tensors.h"
#include "runtime/dispatch/weight_store.h"
#include "runtime/tiers/gpu.h"

namespace haul {
namespace runtime {

struct SwappedModel {
  std::vector<at::Tensor> tensors;   // the model's own
  std::weak_ptr<WeightStore> store;  // gone: an ordinary model
};

}  // namespace runtime

namespace {

c10::Device default_device() {
  return runtime::gpus().empty() ? c10::Device(c10::kCPU) : c10::Device(c10::kCUDA, 0);
}

}  // namespace

OffloadHook::OffloadHook(const ModelRef& model, std::optional<c10::Device> execution_device,
                         const OffloadHook& previous, const std::filesystem::path& folder)
    : model_(std::make_shared<runtime::SwappedModel>()) {
  DispatchOptions options;
  options.main_device = execution_device ? *execution_device : default_device();
  options.offload_folder = folder;
  options.offload_buffers = true;
  const runtime::ModelTensors tensors = runtime::read_model(model);
  const std::shared_ptr<runtime::WeightStore> store = runtime::place_values(
      tensors, DeviceMap{{"", folder.empty() ? kCpuDevice : kDiskDevice}}, options, true);
  if (previous.model_) store->set_previous(previous.model_->store);
  model_->store = store;
  for (const runtime::ModelTensor& item : tensors.all) model_->tensors.push_back(item.tensor);
}

void OffloadHook::offload() const {
  if (!model_) return;
  if (const auto store = model_->store.lock()) store->offload();
}

void OffloadHook::remove() {
  if (!model_) return;
  if (const auto store = model_->store.lock()) {
    const bool here = store->is_here();
    runtime::make_ordinary(model_->tensors, here ? store->main_device() : c10::Device(c10::kCPU));
  }
  model_->store.reset();
  model_->tensors.clear();
}

InputOutput OffloadHook::input_output() const {
  const auto store = model_ ? model_->store.lock() : nullptr;
  return {store ? std::optional(store->main_device()) : std::nullopt, {}, false};
}

}  // namespace haul
