#pragma once

// Runs a model whose weights do not all lie where they are used: some on GPUs, some in RAM, some on
// disk. Any `torch::nn` or TorchScript module, as it is. Functions that change a model are called
// by one thread; the model they leave may be run by several. Failures are Errors that name the
// weight and the file.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "haul/bytes.h"
#include "haul/device_map.h"
#include "haul/dtype.h"
#include "haul/plan.h"
#include "haul/torch/host_sharing.h"
#include "haul/torch/move_tensors.h"

namespace torch::nn {
class Module;
template <typename Contained>
class ModuleHolder;
}  // namespace torch::nn
namespace torch::jit {
struct Module;
}

namespace haul {

// A model of either kind, borrowed.
class ModelRef {
 public:
  ModelRef(torch::nn::Module& module) : module_(&module) {}   // NOLINT: meant to convert
  ModelRef(torch::jit::Module& script) : script_(&script) {}  // NOLINT
  template <typename Contained>
  ModelRef(const torch::nn::ModuleHolder<Contained>& holder)  // NOLINT
      : module_(holder.ptr().get()) {}

  torch::nn::Module* module() const { return module_; }
  torch::jit::Module* script() const { return script_; }

 private:
  torch::nn::Module* module_ = nullptr;
  torch::jit::Module* script_ = nullptr;
};

// Where a model is to lie: the name of a way to decide, a device map, or a plan.
using Placement = std::variant<MapMode, DeviceMap, Plan>;

struct DispatchOptions {
  // Where weights that lie on "cpu" or "disk" are used. Nothing: the map's first GPU, else the CPU.
  std::optional<c10::Device> main_device = std::nullopt;
  // For weights on disk that no file holds yet as they are needed.
  std::filesystem::path offload_folder = {};
  // Buffers of offloaded modules are offloaded too. Otherwise they lie where they are used.
  bool offload_buffers = false;
  // Nothing: what the machine has free.
  std::optional<MaxMemory> max_memory = std::nullopt;
  // Classes that are not split over devices; "Block" is also BlockImpl.
  std::vector<std::string> no_split_module_classes = {};
  // Keys of a TorchScript model's dictionaries whose values are not moved between devices.
  std::vector<std::string> skip_keys = {};
  // Accepted, for those who know it. A weight that a parent reads comes by itself.
  std::vector<std::string> preload_module_classes = {};
  // Room on each device for weights that come and go. Nothing: as the plan says.
  std::optional<Bytes> slots = std::nullopt;
};

struct LoadOptions : DispatchOptions {
  // Floats become this; integers stay. Nothing: the dtype that the model has.
  std::optional<Dtype> dtype = std::nullopt;
  // Ends of names of modules whose floats stay in F32: "norm" is also "final_norm".
  std::vector<std::string> keep_in_fp32_modules = {};
  // Names that are in the checkpoint alone are an error, and so are those in the model alone.
  bool strict = false;
  // Tensors that the model computes itself and no checkpoint holds, such as rotary tables.
  std::vector<std::string> not_stored = {};
  // Weights that have no value yet and are not in the checkpoint are left as they are.
  bool allow_missing = false;
  // Names of modules and tensors: only what is there, or below, is placed and loaded, and nothing
  // else is read. Empty: everything.
  std::vector<std::string> only = {};
  // Processes that load the same model beside this one. Nothing: none.
  std::shared_ptr<HostSharing> sharing = {};
  // Takes remarks, a line each. Nothing: stderr.
  std::function<void(const std::string&)> log = {};
};

// What a checkpoint did not do for a model, told before anything is read.
struct LoadReport {
  std::vector<std::string> missing;        // of the model, not in the checkpoint
  std::vector<std::string> unexpected;     // of the checkpoint, not in the model
  std::vector<std::string> uninitialised;  // of the missing ones: without any value
  Bytes read = 0;                          // of the checkpoint's weights, into memory
};

// Puts the weights of a checkpoint (a file or a folder in any format that haul reads) into a model,
// each once from the file to its place. The model must have been dispatched to nowhere yet.
// Throws Error(kCorrupt) that lists all names whose shapes differ and, unless they are allowed, all
// that would stay without a value.
LoadReport load_checkpoint_in_model(const ModelRef& model, const std::filesystem::path& checkpoint,
                                    const Placement& placement, const LoadOptions& options = {});

// Puts the weights that a model has where the placement says. Weights on disk are written to the
// offload folder. A model that is all in one place afterwards is an ordinary one.
void place_model(const ModelRef& model, const Placement& placement,
                 const DispatchOptions& options = {});

// Throws on what is being handled; memory that was missing as an Error(kResource) that says what
// the model's plan was and what is free.
[[noreturn]] void rethrow_with_plan(const ModelRef& model);

// A dispatched model to call: inputs are brought to where the model computes, outputs back to where
// the first input was, and memory that is missing is told with the plan's numbers. (A direct call
// of forward computes the same, leaves outputs where they are, and throws torch's own errors.)
// Holds the model as it was given.
template <typename Model>
class Dispatched {
 public:
  Dispatched(Model model, InputOutput io) : model_(std::move(model)), io_(std::move(io)) {}

  template <typename... Arguments>
  auto operator()(Arguments&&... arguments) {
    const std::optional<c10::Device> home = first_device(arguments...);
    try {
      return io_.back(forward(io_.in(std::forward<Arguments>(arguments))...), home);
    } catch (...) {
      rethrow_with_plan(model_);
    }
  }

 private:
  template <typename... Arguments>
  auto forward(Arguments&&... arguments) {
    if constexpr (requires { model_->forward(std::forward<Arguments>(arguments)...); }) {
      return model_->forward(std::forward<Arguments>(arguments)...);
    } else {
      return model_.forward({std::forward<Arguments>(arguments)...});
    }
  }

  Model model_;
  InputOutput io_;
};

InputOutput input_output(const ModelRef& model, const DispatchOptions& options);

template <typename Model>
Dispatched<Model> dispatch_model(Model model, const Placement& placement,
                                 const DispatchOptions& options = {}) {
  place_model(model, placement, options);
  return {model, input_output(model, options)};
}

template <typename Model>
Dispatched<Model> load_checkpoint_and_dispatch(Model model, const std::filesystem::path& checkpoint,
                                               const Placement& placement = MapMode::kAuto,
                                               const LoadOptions& options = {}) {
  load_checkpoint_in_model(model, checkpoint, placement, options);
  return {model, input_output(model, options)};
}

// Everything in RAM, or on disk, and used on the main device. The model may be called directly.
void cpu_offload(const ModelRef& model, const DispatchOptions& options = {});
void disk_offload(const ModelRef& model, const std::filesystem::path& folder,
                  DispatchOptions options = {});

// Makes an ordinary model of a dispatched one: every weight on this device.
void undispatch(const ModelRef& model, c10::Device device = c10::kCPU);

// The map that a dispatched model was placed by, or of one with an OffloadHook where it is now;
// empty for any other model.
DeviceMap device_map(const ModelRef& model);

// What a dispatched model took and moved since it was placed.
struct TierUse {
  std::string tier;   // "GPU 0", "RAM"
  Bytes planned = 0;  // weights, room for streaming, and what else the plan sets aside
  Bytes used = 0;
  Bytes peak = 0;
};
struct DispatchReport {
  std::vector<TierUse> tiers;
  Bytes bytes_moved = 0;
  std::uint64_t leases = 0;  // offloaded weights that ops asked for
  std::uint64_t hits = 0;    // of them there at once
  std::uint64_t waits = 0;   // times that an op waited
  double wait_seconds = 0;
  std::uint64_t unplanned = 0;  // weights that the slots had no room for
  Bytes unplanned_peak = 0;
};
DispatchReport dispatch_report(const ModelRef& model);

// Writes the model's weights, wherever they lie, as a safetensors checkpoint in one file or, where
// it is larger, in shards with an index.
void save_model(const ModelRef& model, const std::filesystem::path& folder,
                Bytes max_shard_size = 10'000'000'000);

}  // namespace haul
