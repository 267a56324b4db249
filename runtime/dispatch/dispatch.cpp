#include "haul/torch/dispatch.h"

#include <algorithm>
#include <map>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include "haul/error.h"
#include "runtime/dispatch/build.h"
#include "runtime/dispatch/interception.h"
#include "runtime/dispatch/model_tensors.h"
#include "runtime/dispatch/placement.h"
#include "runtime/dispatch/weight_store.h"

namespace haul {
namespace runtime {
namespace {

// The values that a model has already.
class MemorySource final : public UnitSource {
 public:
  explicit MemorySource(const std::vector<Unit>& units) : units_(units) {
    // Without a GPU, what is in RAM and is to be there may stay.
    stay_ = std::all_of(units.begin(), units.end(),
                        [](const Unit& unit) { return unit.runs_on.is_cpu(); });
  }

  std::optional<FileRange> file_of(std::size_t) const override { return std::nullopt; }

  void stream(std::size_t unit,
              const std::function<void(std::span<const std::byte>)>& sink) const override {
    const at::Tensor& tensor = units_[unit].tensors.front();
    if (tensor.is_meta()) {
      throw Error(ErrorKind::kUsage, fmt::format("'{}' has no value yet", units_[unit].name),
                  "load a checkpoint into the model");
    }
    // All of the memory, as it is: as bytes, and from another device first to the host.
    const c10::Storage& storage = tensor.storage();
    const at::Tensor bytes =
        tensor_on(storage, c10::kByte, {static_cast<std::int64_t>(storage.nbytes())}, {1}, 0, false)
            .to(c10::kCPU);
    sink({static_cast<const std::byte*>(bytes.const_data_ptr()), storage.nbytes()});
  }

  std::string identity() const override { return {}; }

  bool leaves(std::size_t unit) const override {
    return stay_ && units_[unit].tensors.front().is_cpu();
  }

 private:
  const std::vector<Unit>& units_;
  bool stay_;
};

// What was in its place already may still belong to an earlier one: what is away tells the present.
WeightStore* store_of(const ModelTensors& model) {
  WeightStore* store = nullptr;
  for (const ModelTensor& item : model.all) {
    const Weight* const weight = find_weight(item.tensor);
    if (weight == nullptr) continue;
    if (weight->streamer != nullptr) return weight->store.get();
    if (store == nullptr) store = weight->store.get();
  }
  return store;
}

}  // namespace
}  // namespace runtime

void place_model(const ModelRef& model, const Placement& placement,
                 const DispatchOptions& options) {
  const runtime::ModelTensors tensors = runtime::read_model(model);
  std::vector<c10::ScalarType> types;
  for (const runtime::ModelTensor& item : tensors.all) {
    types.push_back(item.tensor.scalar_type());
  }
  const runtime::PlacedModel placed =
      runtime::place_units(tensors, types, runtime::Memory::kKept, placement, options);
  runtime::build(placed, runtime::MemorySource(placed.units), options);
}

InputOutput input_output(const ModelRef& model, const DispatchOptions& options) {
  const runtime::ModelTensors tensors = runtime::read_model(model);
  const runtime::WeightStore* const store = runtime::store_of(tensors);
  if (store == nullptr) return {std::nullopt, options.skip_keys};
  return {store->main_device(), options.skip_keys};
}

void cpu_offload(const ModelRef& model, const DispatchOptions& options) {
  place_model(model, DeviceMap{{"", kCpuDevice}}, options);
}

void disk_offload(const ModelRef& model, const std::filesystem::path& folder,
                  DispatchOptions options) {
  options.offload_folder = folder;
  place_model(model, DeviceMap{{"", kDiskDevice}}, options);
}

void undispatch(const ModelRef& model, c10::Device device) {
  const at::NoGradGuard no_gradients;
  // By the memory that they had: tensors that shared it share the new one. Held, so that no address
  // is used again meanwhile.
  std::map<const c10::StorageImpl*, std::pair<c10::Storage, c10::Storage>> moved;
  for (const runtime::ModelTensor& item : runtime::read_model(model).all) {
    const at::Tensor& tensor = item.tensor;
    const runtime::Weight* const weight = runtime::find_weight(tensor);
    if (weight == nullptr) continue;
    weight->store->forget_left();
    const c10::InferenceMode same_kind(tensor.is_inference());
    const c10::Storage old = tensor.storage();
    auto [entry, is_new] = moved.try_emplace(old.unsafeGetStorageImpl());
    if (is_new) {
      const at::Tensor bytes =
          runtime::tensor_on(old, c10::kByte, {static_cast<std::int64_t>(old.nbytes())}, {1}, 0,
                             runtime::is_marked(tensor));
      entry->second = {
          old, at::empty_like(bytes, bytes.options().device(device)).copy_(bytes).storage()};
    }
    const at::Tensor plain =
        runtime::tensor_on(entry->second.second, tensor.scalar_type(), tensor.sizes(),
                           tensor.strides(), tensor.storage_offset(), false);
    tensor.unsafeGetTensorImpl()->shallow_copy_from(plain.getIntrusivePtr());
  }
}

DeviceMap device_map(const ModelRef& model) {
  const runtime::WeightStore* const store = runtime::store_of(runtime::read_model(model));
  return store == nullptr ? DeviceMap{} : store->map();
}

DispatchReport dispatch_report(const ModelRef& model) {
  DispatchReport report;
  const runtime::ModelTensors tensors = runtime::read_model(model);
  const runtime::WeightStore* const store = runtime::store_of(tensors);
  if (store == nullptr) return report;
  for (const auto& [tier, ledger] : store->ledgers()) {
    report.tiers.push_back({tier, store->planned(tier), ledger.used(), ledger.peak()});
  }
  for (const auto& [device, streamer] : store->streamers()) {
    const runtime::StreamCounts counts = streamer->counts();
    report.bytes_moved += counts.bytes;
    report.leases += counts.leases;
    report.hits += counts.hits;
    report.waits += counts.waits;
    report.wait_seconds += counts.wait_seconds;
    report.unplanned += counts.unplanned;
    report.unplanned_peak += counts.unplanned_peak;
  }
  return report;
}

}  // namespace haul
