#pragma once

// From what a caller asks for to where each piece of a model's memory lies and is used. One thread.

#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "haul/bytes.h"
#include "haul/device_map.h"
#include "haul/plan.h"
#include "haul/torch/dispatch.h"
#include "runtime/dispatch/model_tensors.h"

namespace haul::runtime {

// Memory of a model that is placed as a whole: a tensor, or several that share it.
struct Unit {
  std::string name;                 // of its first tensor
  std::size_t first = 0;            // the same in ModelTensors::all
  std::vector<at::Tensor> tensors;  // distinct ones
  c10::ScalarType type;             // that its elements will have
  Bytes size = 0;                   // likewise
  bool is_buffer = false;
  bool is_table = false;  // rows of it are looked up, and nothing else has its memory
  Device lies;
  c10::Device runs_on = c10::kCPU;

  // As stored: sizes, strides and offsets of the tensors stay. Else it is one contiguous tensor.
  bool as_stored = false;

  // The CPU reads rows of it where it lies.
  bool looked_up() const { return is_table && runs_on.is_cpu() && lies.kind == DeviceKind::kDisk; }
  bool resident() const {
    return lies.kind != DeviceKind::kDisk && runs_on.is_cpu() == (lies.kind == DeviceKind::kCpu);
  }
};

struct PlacedModel {
  Plan plan;
  c10::Device main_device = c10::kCPU;
  std::vector<Unit> units;  // in the model's order
  bool whole = false;       // it comes as a whole, into slots that are taken for as long
};

enum class Memory {
  kKept,   // the model has its values: tensors that share memory go on sharing it
  kFresh,  // values will be loaded: only tensors that are the same share it
};

// What this machine has free for models that haul runs here.
MaxMemory machine_memory();
// Throws Error(kResource) for a plan that does not fit, with what is missing and what would help.
void require_fit(const Plan& plan, const std::string& model);
// Throws Error(kUnsupported) for one that does not compute.
c10::Device real_device(Device device);
// The first GPU that a plan computes on, as far as it says, or has weights on.
std::optional<c10::Device> first_gpu(const Plan& plan);

// `types` gives the dtype that each tensor of the model will have. Throws Error(kUsage) for a
// model that is dispatched already and for a map that does not cover it and Error(kResource), with
// what would help, where it does not fit.
PlacedModel place_units(const ModelTensors& model, const std::vector<c10::ScalarType>& types,
                        Memory memory, const Placement& placement, const DispatchOptions& options);

}  // namespace haul::runtime
