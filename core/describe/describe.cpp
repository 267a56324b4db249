#include "core/describe/describe.h"

#include <fmt/format.h>

#include "core/describe/family.h"
#include "core/describe/size_check.h"
#include "core/describe/stored_tensors.h"
#include "haul/error.h"

namespace haul::core {
namespace {

// The class that a config names and its family, where known.
struct Architecture {
  std::string name;
  const Family* family = nullptr;
};

Architecture find_architecture(const ConfigReader& config, const DescribeOptions& options) {
  const std::string model_type = config.text("model_type", "");
  std::string named = model_type.empty() ? config.text("architecture", "") : "";  // timm's key
  const Json* list = config.find({"architectures"});
  if (named.empty() && list != nullptr && !list->is_null() && !list->empty()) {
    if (!list->is_array() || !list->front().is_string()) {
      config.fail("architectures", "is not a list of class names");
    }
    named = list->front().get<std::string>();
  }
  const Family* family = find_family(named, model_type);
  if (family == nullptr && options.base_model) family = find_family("", model_type);
  if (family != nullptr && (named.empty() || options.base_model)) {
    // timm's models have no bare form of their own.
    if (!family->model_type.empty()) named = family->classes.front();
  }
  return {std::move(named), family};
}

std::optional<Dtype> config_dtype(const ConfigReader& config) {
  for (const std::string_view key : {"dtype", "torch_dtype"}) {
    if (!config.has(key)) continue;
    const std::string name = config.text(key, "");
    if (name == "auto") return std::nullopt;
    const auto dtype = dtype_from_torch_name(name);
    if (!dtype || !is_float(*dtype)) config.fail(key, "is not a float dtype of torch");
    return dtype;
  }
  return std::nullopt;
}

Description describe_architecture(const ConfigReader& config, const Architecture& architecture,
                                  std::string_view source, const DescribeOptions& options) {
  if (architecture.family == nullptr) {
    const std::string name =
        architecture.name.empty() ? config.text("model_type", "") : architecture.name;
    if (name.empty()) {
      throw Error(ErrorKind::kUnsupported, fmt::format("{}: names no architecture", source));
    }
    throw Error(ErrorKind::kUnsupported,
                fmt::format("{}: the architecture \"{}\" is not one that haul knows by its config",
                            source, name),
                "with a checkpoint beside it, its tensors' names describe the model");
  }
  if (config.has("per_layer_config")) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("{}: \"per_layer_config\": layers that differ in size", source));
  }
  Description result = architecture.family->describe(config, architecture.name);
  result.root.name.clear();
  result.architecture = architecture.name;
  check_sizes(result, source);
  if (options.dtype == WeightDtype::kStored) {
    set_dtype(config_dtype(config).value_or(Dtype::kF32), &result.root);
  }
  return result;
}

bool has_tensors(const ModelFiles& files) {
  return !files.checkpoint.empty() || !files.remote_tensors.empty();
}

}  // namespace

bool needs_headers(const ModelFiles& files, const DescribeOptions& options) {
  if (files.config.empty() || options.dtype == WeightDtype::kStored) return true;
  const Json config = read_json(files.config);
  const Family* family =
      find_architecture(ConfigReader(config, files.config.string()), options).family;
  return family == nullptr || family->ties == Ties::kInCheckpoint;
}

Description describe_config(const Json& json, std::string_view source,
                            const DescribeOptions& options) {
  const ConfigReader config(json, std::string(source));
  return describe_architecture(config, find_architecture(config, options), source, options);
}

Described describe(const ModelFiles& files, const DescribeOptions& options) {
  Described result;
  std::optional<StoredTensors> tensors;
  if (files.config.empty() && has_tensors(files)) tensors.emplace(files);
  const bool from_metadata = tensors && !tensors->config().is_null();
  Architecture architecture;
  if (!files.config.empty() || from_metadata) {
    const std::string source = from_metadata ? files.name : files.config.string();
    const Json json = from_metadata ? tensors->config() : read_json(files.config);
    const ConfigReader config(json, source);
    architecture = find_architecture(config, options);
    if (architecture.family != nullptr || !has_tensors(files)) {
      result.from = from_metadata ? DescribedFrom::kCheckpoint : DescribedFrom::kConfig;
      result.description = describe_architecture(config, architecture, source, options);
      if (config.has("quantization_config")) {
        result.notes.push_back("the checkpoint is quantised; the tree shows its unquantised form");
      }
      const bool stored = options.dtype == WeightDtype::kStored;
      if (!has_tensors(files) || (result.description.tied.empty() && !stored)) return result;
      if (!tensors) tensors.emplace(files);
      const std::string_view prefix = architecture.family->base_prefix;
      untie_stored(*tensors, prefix, &result.description);
      if (stored) set_stored_dtypes(*tensors, prefix, &result.description);
      for (std::string& note : tensors->notes()) result.notes.push_back(std::move(note));
      return result;
    }
  }
  if (!has_tensors(files)) {
    throw Error(ErrorKind::kNotFound,
                fmt::format("{}: neither a config.json nor a checkpoint", files.name));
  }
  if (!tensors) tensors.emplace(files);
  result.description = describe_tensors(tensors->headers(), files.name);
  result.description.architecture = std::move(architecture.name);
  result.from = DescribedFrom::kCheckpoint;
  result.notes = tensors->notes();
  return result;
}

}  // namespace haul::core
