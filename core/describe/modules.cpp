#include "core/describe/modules.h"

#include <array>

#include <fmt/format.h>

#include "haul/error.h"

namespace haul::core {
namespace {

struct Activation {
  std::string_view function;
  std::string_view class_name;
};

constexpr std::array kActivations = {
    Activation{"gelu", "GELUActivation"},
    Activation{"gelu_10", "ClippedGELUActivation"},
    Activation{"gelu_fast", "FastGELUActivation"},
    Activation{"gelu_new", "NewGELUActivation"},
    Activation{"gelu_python", "GELUActivation"},
    Activation{"gelu_pytorch_tanh", "GELUTanh"},
    Activation{"gelu_python_tanh", "GELUTanh"},
    Activation{"gelu_accurate", "AccurateGELUActivation"},
    Activation{"hardswish", "Hardswish"},
    Activation{"laplace", "LaplaceActivation"},
    Activation{"leaky_relu", "LeakyReLU"},
    Activation{"linear", "LinearActivation"},
    Activation{"mish", "MishActivation"},
    Activation{"quick_gelu", "QuickGELUActivation"},
    Activation{"relu", "ReLU"},
    Activation{"relu2", "ReLUSquaredActivation"},
    Activation{"relu6", "ReLU6"},
    Activation{"sigmoid", "Sigmoid"},
    Activation{"silu", "SiLUActivation"},
    Activation{"sqrtsoftplus", "SqrtSoftplusActivation"},
    Activation{"swish", "SiLU"},
    Activation{"tanh", "Tanh"},
    Activation{"prelu", "PReLU"},
};

}  // namespace

ModuleSpec linear(std::string_view name, std::int64_t in, std::int64_t out, Bias bias) {
  ModuleSpec result = module(name, "Linear");
  add_parameter(&result, "weight", {out, in});
  if (bias == Bias::kPresent) add_parameter(&result, "bias", {out});
  return result;
}

ModuleSpec embedding(std::string_view name, std::int64_t count, std::int64_t width) {
  ModuleSpec result = module(name, "Embedding");
  add_parameter(&result, "weight", {count, width});
  return result;
}

ModuleSpec layer_norm(std::string_view name, std::int64_t width, Bias bias) {
  ModuleSpec result = rms_norm(name, "LayerNorm", width);
  if (bias == Bias::kPresent) add_parameter(&result, "bias", {width});
  return result;
}

ModuleSpec rms_norm(std::string_view name, std::string_view class_name, std::int64_t width) {
  ModuleSpec result = module(name, class_name);
  add_parameter(&result, "weight", {width});
  return result;
}

ModuleSpec conv2d(std::string_view name, std::int64_t in, std::int64_t out, std::int64_t kernel) {
  ModuleSpec result = module(name, "Conv2d");
  add_parameter(&result, "weight", {out, in, kernel, kernel});
  return result;
}

ModuleSpec dropout(std::string_view name) {
  return module(name, "Dropout");
}

ModuleSpec activation(std::string_view name, const std::string& function) {
  for (const Activation& known : kActivations) {
    if (known.function != function) continue;
    ModuleSpec result = module(name, known.class_name);
    if (function == "prelu") add_parameter(&result, "weight", {1});
    return result;
  }
  throw Error(ErrorKind::kUnsupported, fmt::format("unknown activation function \"{}\"", function));
}

void add_parameter(ModuleSpec* module, std::string_view name, Shape shape) {
  module->parameters.push_back({std::string(name), Dtype::kF32, std::move(shape)});
}

void add_buffer(ModuleSpec* module, std::string_view name, Dtype dtype, Shape shape,
                bool persistent) {
  module->buffers.push_back({std::string(name), dtype, std::move(shape), persistent});
}

ModuleSpec repeated(std::string_view name, std::int64_t count, const ModuleSpec& block) {
  ModuleSpec result = module(name, "ModuleList");
  result.children.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    result.children.push_back(block);
    result.children.back().name = std::to_string(i);
  }
  return result;
}

}  // namespace haul::core
