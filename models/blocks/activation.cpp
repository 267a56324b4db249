#include "models/blocks/activation.h"

#include <string_view>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/relu6.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tanh.h>
#include <fmt/format.h>

#include "haul/error.h"

namespace haul::models {
namespace {

at::Tensor gelu(const at::Tensor& x) {
  return at::gelu(x);
}
at::Tensor gelu_by_tanh(const at::Tensor& x) {
  return at::gelu(x, "tanh");
}
at::Tensor quick_gelu(const at::Tensor& x) {
  return x * at::sigmoid(1.702 * x);
}
at::Tensor silu(const at::Tensor& x) {
  return at::silu(x);
}
at::Tensor relu(const at::Tensor& x) {
  return at::relu(x);
}
at::Tensor relu_squared(const at::Tensor& x) {
  return at::relu(x).square();
}
at::Tensor tanh(const at::Tensor& x) {
  return at::tanh(x);
}
at::Tensor sigmoid(const at::Tensor& x) {
  return at::sigmoid(x);
}
at::Tensor mish(const at::Tensor& x) {
  return at::mish(x);
}
at::Tensor unchanged(const at::Tensor& x) {
  return x;
}

constexpr std::pair<std::string_view, Activation> kActivations[] = {
    {"gelu", {gelu}},
    {"gelu_python", {gelu}},
    {"gelu_new", {gelu_by_tanh, kernels::Curve::kGeluByTanh}},
    {"gelu_fast", {gelu_by_tanh, kernels::Curve::kGeluByTanh}},
    {"gelu_pytorch_tanh", {gelu_by_tanh, kernels::Curve::kGeluByTanh}},
    {"gelu_python_tanh", {gelu_by_tanh, kernels::Curve::kGeluByTanh}},
    {"quick_gelu", {quick_gelu}},
    {"silu", {silu, kernels::Curve::kSilu}},
    {"swish", {silu, kernels::Curve::kSilu}},
    {"relu", {relu}},
    {"relu2", {relu_squared}},
    {"tanh", {tanh}},
    {"sigmoid", {sigmoid}},
    {"mish", {mish}},
    {"linear", {unchanged}},
};

}  // namespace

Activation activation(const std::string& name) {
  std::string known;
  for (const auto& [key, function] : kActivations) {
    if (key == name) return function;
    known += known.empty() ? "" : ", ";
    known += key;
  }
  throw Error(ErrorKind::kUnsupported, fmt::format("activation '{}' is not known", name),
              fmt::format("known are {}", known));
}

}  // namespace haul::models
