// Runs models as a test asks, in one process: reads a JSON object a line from stdin and answers
// with one a line. {"model", "dtype", "max_memory", "device_map", "offload_folder", "context"}
// load;
// {"ids": [[…]], "attended": [[…]], "output": FILE} writes what a pass gives as a safetensors file;
// {"prompts": [[…]], "max_new_tokens", …} generates: {"generated": [[…]]}. A model that was loaded
// stays until another is asked for. An Error is {"error"}.

#include <iostream>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include "core/base/json.h"
#include "core/formats/safetensors_writer.h"
#include "haul/error.h"
#include "haul/torch/model.h"

namespace {

using haul::core::Json;

haul::ModelOptions options_of(const Json& line) {
  haul::ModelOptions options;
  options.log = [](const std::string&) {};
  if (line.contains("dtype")) {
    options.dtype = haul::dtype_from_torch_name(line["dtype"].get<std::string>());
  }
  if (line.contains("max_memory")) {
    options.max_memory = haul::parse_max_memory(line["max_memory"].get<std::string>());
  }
  if (line.contains("device_map")) {
    options.placement = haul::read_device_map(line["device_map"].dump(), "device_map");
  }
  options.offload_folder = line.value("offload_folder", "");
  if (line.contains("context")) options.context = line["context"].get<std::int64_t>();
  if (line.contains("batch")) options.batch = line["batch"].get<std::int64_t>();
  return options;
}

at::Tensor matrix(const Json& rows, at::ScalarType type) {
  const auto values = rows.get<std::vector<std::vector<std::int64_t>>>();
  std::vector<std::int64_t> flat;
  for (const auto& row : values) flat.insert(flat.end(), row.begin(), row.end());
  return at::tensor(flat).view({static_cast<std::int64_t>(values.size()), -1}).to(type);
}

void write(const at::Tensor& output, const std::string& file) {
  haul::core::SafetensorsWriter writer(file, {{"output", haul::Dtype::kF32, output.sizes().vec()}},
                                       {});
  writer.write({static_cast<const std::byte*>(output.const_data_ptr()), output.nbytes()});
  writer.commit();
}

Json generate(haul::LoadedModel& model, const Json& line) {
  haul::GenerateOptions options;
  options.temperature = line.value("temperature", 0.0);
  options.max_new_tokens = line.value("max_new_tokens", std::int64_t{16});
  options.seed = line.value("seed", std::uint64_t{0});
  if (line.contains("top_k")) options.top_k = line["top_k"].get<std::int64_t>();
  if (line.contains("num_beams")) options.num_beams = line["num_beams"].get<std::int64_t>();
  if (line.contains("repetition_penalty")) {
    options.repetition_penalty = line["repetition_penalty"].get<double>();
  }
  Json ids = Json::array();
  const auto prompts = line["prompts"].get<std::vector<std::vector<haul::TokenId>>>();
  for (const haul::Generated& one : model.generate_batch(prompts, options)) ids.push_back(one.ids);
  return {{"generated", ids}};
}

Json answer(const Json& line, std::optional<haul::LoadedModel>& model) {
  Json result = Json::object();
  if (line.contains("model")) {
    model.reset();
    model = haul::load_model(line["model"].get<std::string>(), options_of(line));
    for (const haul::PlanDevice& device : model->plan().devices) {
      if (device.device == haul::kCpuDevice) {
        result["used"] = device.used();
        result["weights"] = device.weights;
      }
    }
  }
  if (line.contains("ids")) {
    at::Tensor attended;
    if (line.contains("attended")) attended = matrix(line["attended"], at::kBool);
    write(model->forward(matrix(line["ids"], at::kLong), attended).contiguous(),
          line["output"].get<std::string>());
  }
  if (line.contains("prompts")) result.update(generate(*model, line));
  if (model) {
    Json tiers = Json::object();
    for (const haul::TierUse& tier : model->report().tiers) {
      tiers[tier.tier] = {{"planned", tier.planned}, {"peak", tier.peak}};
    }
    result["tiers"] = tiers;
    result["bytes_moved"] = model->report().bytes_moved;
  }
  return result;
}

}  // namespace

int main() {
  std::optional<haul::LoadedModel> model;
  for (std::string line; std::getline(std::cin, line);) {
    Json result;
    try {
      result = answer(haul::core::parse_json(line, "stdin"), model);
    } catch (const haul::Error& error) {
      result = {{"error", error.what()}};
    }
    std::cout << result.dump() << std::endl;
  }
}
