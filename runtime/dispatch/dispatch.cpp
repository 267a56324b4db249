#include "haul/torch/dispatch.h"

#include "runtime/dispatch/lack_of_memory.h"
#include "runtime/dispatch/memory_copies.h"
#include "runtime/dispatch/memory_source.h"
#include "runtime/dispatch/model_tensors.h"
#include "runtime/dispatch/weight_store.h"

namespace haul {

void place_model(const ModelRef& model, const Placement& placement,
                 const DispatchOptions& options) {
  runtime::place_values(runtime::read_model(model), placement, options, false);
}

InputOutput input_output(const ModelRef& model, const DispatchOptions& options) {
  const runtime::ModelTensors tensors = runtime::read_model(model);
  const runtime::WeightStore* const store = runtime::store_of(tensors);
  if (store == nullptr) return {std::nullopt, options.skip_keys};
  return {store->main_device(), options.skip_keys};
}

void rethrow_with_plan(const ModelRef& model) {
  std::vector<PlanDevice> planned;
  const runtime::WeightStore* const store = runtime::store_of(runtime::read_model(model));
  if (store != nullptr) planned = store->plan();
  runtime::telling_lack_of_memory("the model", planned, [] { throw; });
  throw;  // nothing comes here
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
  std::vector<at::Tensor> tensors;
  for (const runtime::ModelTensor& item : runtime::read_model(model).all) {
    tensors.push_back(item.tensor);
  }
  runtime::make_ordinary(tensors, device);
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
