#include "runtime/dispatch/placement.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/machine.h"
#include "core/place/model_world.h"
#include "haul/error.h"
#include "haul/profile.h"
#include "runtime/dispatch/interception.h"
#include "runtime/tiers/gpu.h"

namespace haul::runtime {

MaxMemory machine_memory() {
  constexpr Bytes kRamPart = 10;  // that is left to everything else
  std::vector<Budget> budgets;
  const core::Machine machine = core::read_machine(core::this_os());
  const std::vector<Gpu> all = gpus();
  for (const Gpu& found : all) {
    const Bytes share =
        core::gpu_share(machine, found.index, static_cast<int>(all.size()), found.free);
    if (share > 0) budgets.push_back(budget(gpu(found.index), share));
  }
  const Bytes ram = machine.ram;
  budgets.push_back(budget(kCpuDevice, ram - ram / kRamPart));
  return get_max_memory(std::move(budgets));
}

void require_fit(const Plan& plan, const std::string& model) {
  if (plan.fits) return;
  std::vector<std::string> missing;
  for (const Budget& item : plan.shortfall) {
    missing.push_back(
        fmt::format("{} more on {}", format_bytes(item.bytes()), to_string(item.device)));
  }
  throw Error(ErrorKind::kResource,
              fmt::format("{} does not fit: it would need {}", model, fmt::join(missing, " or ")),
              fmt::format("{}", fmt::join(plan.changes, "; or ")));
}

c10::Device real_device(Device device) {
  if (device.kind == DeviceKind::kGpu) {
    return {c10::kCUDA, static_cast<c10::DeviceIndex>(device.index)};
  }
  if (device.kind == DeviceKind::kCpu) return c10::kCPU;
  throw Error(ErrorKind::kUnsupported,
              fmt::format("haul does not compute on '{}'", to_string(device)));
}

std::optional<c10::Device> first_gpu(const Plan& plan) {
  for (const PlanStep& step : plan.steps) {
    if (step.runs_on.kind == DeviceKind::kGpu) return real_device(step.runs_on);
  }
  for (const auto& [name, device] : plan.map) {
    if (device.kind == DeviceKind::kGpu) return real_device(device);
  }
  return std::nullopt;
}

namespace {

// The description that the model will have once it is loaded.
void set_types(ModuleSpec* module, const std::vector<c10::ScalarType>& types, std::size_t* next) {
  for (ParameterSpec& parameter : module->parameters) parameter.dtype = to_dtype(types[(*next)++]);
  for (BufferSpec& buffer : module->buffers) buffer.dtype = to_dtype(types[(*next)++]);
  for (ModuleSpec& child : module->children) set_types(&child, types, next);
}

void add_tables(const ModuleSpec& module, const std::string& prefix, std::set<std::string>* names) {
  if (core::is_table(module)) names->insert(prefix + module.parameters.front().name);
  for (const ModuleSpec& child : module.children)
    add_tables(child, prefix + child.name + ".", names);
}

void check_map(const Description& description, const DeviceMap& map) {
  const DeviceMapCheck check = check_device_map(description, map);
  if (!check.uncovered.empty()) {
    throw Error(ErrorKind::kUsage, fmt::format("the device map gives no device to {}",
                                               fmt::join(check.uncovered, ", ")));
  }
  if (!check.unknown_keys.empty()) {
    std::vector<std::string> names;
    for (const NamedTensor& tensor : all_tensors(description)) names.push_back(tensor.name);
    for (const std::string& key : check.unknown_keys) {
      if (std::find(names.begin(), names.end(), key) == names.end()) {
        throw Error(ErrorKind::kUsage,
                    fmt::format("the device map names '{}', which the model does not have", key));
      }
    }
  }
}

Plan plan_for(const Description& description, const Placement& placement,
              const DispatchOptions& options) {
  if (const Plan* plan = std::get_if<Plan>(&placement)) {
    check_map(description, plan->map);
    return *plan;
  }
  PlanRequest request;
  request.memory = options.max_memory ? *options.max_memory : machine_memory();
  request.margins = true;
  request.memory_from_machine = !options.max_memory;
  request.options.no_split = options.no_split_module_classes;
  request.options.offload_buffers = options.offload_buffers;
  if (const DeviceMap* map = std::get_if<DeviceMap>(&placement)) {
    check_map(description, *map);
    request.given_map = *map;
  } else {
    request.mode = std::get<MapMode>(placement);
  }
  Plan plan = make_plan(description, request, load_profile());
  // A map that a user gives is tried as it is; what has no room says so when memory is reserved.
  if (!request.given_map) require_fit(plan, "the model");
  return plan;
}

c10::Device main_device_of(const Plan& plan, bool given_map, const DispatchOptions& options) {
  if (options.main_device) {
    c10::Device device = *options.main_device;
    if (device.is_cuda() && !device.has_index()) device.set_index(0);
    return device;
  }
  std::optional<Device> first;
  for (const auto& [name, device] : plan.map) {
    if (device.kind == DeviceKind::kGpu && (!first || device < *first)) first = device;
  }
  // A plan that streams everything to a GPU has nothing that lies there. A user's map that names no
  // GPU asks for the CPU.
  for (const PlanStep& step : plan.steps) {
    if (!first && !given_map && step.runs_on.kind == DeviceKind::kGpu) first = step.runs_on;
  }
  return first ? real_device(*first) : c10::Device(c10::kCPU);
}

bool is_at_or_below(std::string_view name, std::string_view module) {
  return module.empty() ||
         (name.starts_with(module) && (name.size() == module.size() || name[module.size()] == '.'));
}

// Where a plan uses what it keeps in RAM.
class PlannedExecution {
 public:
  explicit PlannedExecution(const Plan& plan) : steps_(plan.steps) {}

  // Names must be asked for in the model's order.
  std::optional<Device> runs_on(std::string_view name) {
    while (step_ < steps_.size()) {
      const PlanStep& step = steps_[step_];
      if (is_at_or_below(name, step.last)) {
        inside_ = true;
        return step.runs_on;
      }
      if (inside_) {  // past the last unit of the step
        inside_ = false;
        ++step_;
        continue;
      }
      return step.runs_on;
    }
    return std::nullopt;
  }

 private:
  const std::vector<PlanStep>& steps_;
  std::size_t step_ = 0;
  bool inside_ = false;
};

bool has_memory(const at::Tensor& tensor) {
  return tensor.has_storage() && tensor.storage().data() != nullptr;
}

// Tensors with one key are one unit.
using MemoryKey = std::tuple<const void*, std::int64_t, std::vector<std::int64_t>>;
MemoryKey key_of(const at::Tensor& tensor, Memory memory) {
  if (!has_memory(tensor)) return {tensor.unsafeGetTensorImpl(), 0, {}};
  const void* storage = tensor.storage().unsafeGetStorageImpl();
  if (memory == Memory::kKept) return {storage, 0, {}};
  return {storage, tensor.storage_offset(), tensor.sizes().vec()};
}

}  // namespace

PlacedModel place_units(const ModelTensors& model, const std::vector<c10::ScalarType>& types,
                        Memory memory, const Placement& placement, const DispatchOptions& options) {
  for (const ModelTensor& item : model.all) {
    if (!is_marked(item.tensor)) continue;
    throw Error(ErrorKind::kUsage, fmt::format("'{}': the model is dispatched already", item.name),
                "call haul::undispatch first");
  }
  Description description = model.description;
  std::size_t next = 0;
  set_types(&description.root, types, &next);

  PlacedModel placed;
  placed.plan = plan_for(description, placement, options);
  placed.main_device =
      main_device_of(placed.plan, std::holds_alternative<DeviceMap>(placement), options);
  const bool planned = !std::holds_alternative<DeviceMap>(placement);
  PlannedExecution execution(placed.plan);

  std::set<std::string> tables;
  add_tables(description.root, "", &tables);
  std::map<MemoryKey, std::size_t> known;
  for (std::size_t i = 0; i < model.all.size(); ++i) {
    const ModelTensor& item = model.all[i];
    const std::optional<Device> step = planned ? execution.runs_on(item.name) : std::nullopt;
    const auto [entry, is_new] =
        known.try_emplace(key_of(item.tensor, memory), placed.units.size());
    if (!is_new) {
      placed.units[entry->second].is_table = false;
      std::vector<at::Tensor>& tensors = placed.units[entry->second].tensors;
      const bool there = std::any_of(tensors.begin(), tensors.end(),
                                     [&](const at::Tensor& t) { return t.is_same(item.tensor); });
      if (!there) tensors.push_back(item.tensor);
      continue;
    }
    Unit unit;
    unit.name = item.name;
    unit.first = i;
    unit.tensors = {item.tensor};
    unit.type = types[i];
    unit.as_stored = memory == Memory::kKept && has_memory(item.tensor);
    unit.size = unit.as_stored ? item.tensor.storage().nbytes()
                               : item.tensor.numel() * c10::elementSize(types[i]);
    unit.is_buffer = item.is_buffer;
    unit.is_table = tables.contains(item.name);
    unit.lies = *device_of(placed.plan.map, item.name);
    if (unit.lies.kind == DeviceKind::kGpu) {
      unit.runs_on = real_device(unit.lies);
    } else {
      const bool as_planned = step && (step->kind == DeviceKind::kCpu || !options.main_device);
      unit.runs_on = as_planned ? real_device(*step) : placed.main_device;
      // Small, and often read by code that is no op: they lie where they are used.
      if (unit.is_buffer && !options.offload_buffers) {
        unit.lies = unit.runs_on.is_cpu() ? kCpuDevice : gpu(unit.runs_on.index());
      }
    }
    placed.units.push_back(std::move(unit));
  }
  return placed;
}

}  // namespace haul::runtime
