// dispatch_cases: reads scenarios from stdin, a line of JSON each, carries each out on a model of
// dispatch_models.h and prints a line of JSON with what was seen. For tests that carry out the same
// scenarios with another program and compare.
//
// A scenario: "model"; "values", a checkpoint that gives a model built in the ordinary way its
// values (without it the model is empty); "steps", a list of
//   {"do": "load", "checkpoint": …, "device_map": …, OPTIONS}
//   {"do": "dispatch", "device_map": …, OPTIONS}, {"do": "cpu_offload", OPTIONS},
//   {"do": "disk_offload", "folder": …, OPTIONS}
//   {"do": "forward", "input": FILE, "output": FILE}, {"do": "values", "output": FILE}
//   {"do": "save", "folder": …, "max_shard_size": …}, {"do": "move"}, {"do": "undispatch"}
// Seen, of each step: "tensors", where each tensor is ("cpu", "away": not resident, "meta": without
// a value) and its dtype; "log"; "error". After an error it goes on with the next step.

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "core/base/json.h"
#include "core/formats/checkpoint.h"
#include "core/formats/safetensors_writer.h"
#include "haul/error.h"
#include "haul/torch/dispatch.h"
#include "haul/torch/empty_weights.h"
#include "runtime/dispatch/model_tensors.h"
#include "tests/support/dispatch_models.h"

namespace haul::test {
namespace {

using core::Json;

at::Tensor read_tensor(const core::Checkpoint& checkpoint, const std::string& name) {
  const core::StoredTensor* const stored = checkpoint.find(name);
  if (stored == nullptr) throw Error(ErrorKind::kNotFound, "no value for " + name);
  const auto bytes = checkpoint.bytes(*stored);
  const at::Tensor view =
      torch::from_blob(const_cast<std::byte*>(bytes.data()), stored->shape,
                       at::TensorOptions(runtime::to_scalar_type(stored->dtype)));
  return view.clone();
}

void write_tensors(const std::string& file,
                   const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  std::vector<core::HeaderTensor> headers;
  headers.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    headers.push_back({name, runtime::to_dtype(tensor.scalar_type()), tensor.sizes().vec()});
  }
  core::SafetensorsWriter writer(file, headers, {{"format", "pt"}});
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor value = tensor.contiguous();
    writer.write({static_cast<const std::byte*>(value.const_data_ptr()), value.nbytes()});
  }
  writer.commit();
}

Json tensors_of(const Model& model) {
  Json result = Json::object();
  for (const runtime::ModelTensor& item : runtime::read_model(model).all) {
    const at::Tensor& tensor = item.tensor;
    const char* where = "meta";
    if (!tensor.is_meta()) where = tensor.storage().data() == nullptr ? "away" : "cpu";
    result[item.name] = {where, torch_name(runtime::to_dtype(tensor.scalar_type()))};
  }
  return result;
}

class Scenario {
 public:
  explicit Scenario(const Json& scenario) : model_(nullptr) {
    if (scenario.contains("values")) {
      model_ = make_model(scenario["model"]);
      const auto values = core::Checkpoint::open(scenario["values"].get<std::string>());
      const at::NoGradGuard no_gradients;
      for (const runtime::ModelTensor& item : runtime::read_model(model_).all) {
        item.tensor.copy_(read_tensor(values, item.name));
      }
    } else {
      const EmptyWeights scope;
      model_ = make_model(scenario["model"]);
    }
    seen_.push_back({{"do", "build"}, {"tensors", tensors_of(model_)}});
    for (const Json& step : scenario["steps"]) take(step);
  }

  const Json& seen() const { return seen_; }

 private:
  void take(const Json& step) {
    Json result = {{"do", step["do"]}, {"error", nullptr}};
    log_ = Json::array();
    try {
      act(step, &result);
    } catch (const Error& error) {
      result["error"] = {{"haul", true}, {"message", error.what()}};
    } catch (const std::exception& error) {
      result["error"] = {{"haul", false}, {"message", error.what()}};
    }
    result["log"] = log_;
    result["tensors"] = tensors_of(model_);
    seen_.push_back(std::move(result));
  }

  void act(const Json& step, Json* result) {
    const std::string what = step["do"];
    if (what == "load") {
      const LoadReport report = load_checkpoint_in_model(
          model_, step["checkpoint"].get<std::string>(), map_of(step), load_options(step));
      (*result)["missing"] = report.missing;
      (*result)["unexpected"] = report.unexpected;
    } else if (what == "dispatch") {
      place_model(model_, map_of(step), load_options(step));
    } else if (what == "cpu_offload") {
      cpu_offload(model_, load_options(step));
    } else if (what == "disk_offload") {
      disk_offload(model_, step["folder"].get<std::string>(), load_options(step));
      // The file goes with its model.
      if (step.contains("keep")) {
        std::filesystem::copy(step["folder"].get<std::string>(), step["keep"].get<std::string>());
      }
    } else if (what == "forward") {
      const at::NoGradGuard no_gradients;
      const at::Tensor input =
          read_tensor(core::Checkpoint::open(step["input"].get<std::string>()), "input");
      Dispatched<Model> handle(model_, input_output(model_, {}));
      write_tensors(step["output"], {{"output", handle(input)}});
    } else if (what == "values") {
      std::vector<std::pair<std::string, at::Tensor>> values;
      for (const runtime::ModelTensor& item : runtime::read_model(model_).all) {
        values.emplace_back(item.name, item.tensor.detach().clone());
      }
      write_tensors(step["output"], values);
    } else if (what == "save") {
      save_model(model_, step["folder"].get<std::string>(), step["max_shard_size"].get<Bytes>());
    } else if (what == "move") {
      model_->to(torch::kDouble);
    } else if (what == "undispatch") {
      undispatch(model_);
    } else {
      throw Error(ErrorKind::kUsage, "no such step: " + what);
    }
    (*result)["device_map"] = Json::object();
    for (const auto& [name, device] : device_map(model_)) {
      (*result)["device_map"][name] = to_string(device);
    }
  }

  static DeviceMap map_of(const Json& step) {
    return read_device_map(step["device_map"].dump(), "the scenario's map");
  }

  LoadOptions load_options(const Json& step) {
    LoadOptions options;
    options.offload_folder = step.value("offload_folder", "");
    options.offload_buffers = step.value("offload_buffers", false);
    options.strict = step.value("strict", false);
    options.allow_missing = step.value("allow_missing", false);
    options.keep_in_fp32_modules = step.value("keep_in_fp32_modules", std::vector<std::string>());
    if (step.contains("dtype")) {
      options.dtype = dtype_from_torch_name(step["dtype"].get<std::string>());
    }
    options.log = [this](const std::string& line) { log_.push_back(line); };
    return options;
  }

  Model model_;
  Json seen_ = Json::array();
  Json log_;
};

}  // namespace
}  // namespace haul::test

int main() try {
  for (std::string line; std::getline(std::cin, line);) {
    const haul::test::Scenario scenario(haul::core::parse_json(line, "stdin"));
    std::cout << scenario.seen().dump() << std::endl;
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
