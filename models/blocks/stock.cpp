#include "models/blocks/stock.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include "haul/error.h"
#include "kernels/layer_norm.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"

namespace haul::models {
namespace {

const ModuleSpec* find_child(const ModuleSpec& parent, std::string_view name) {
  const auto found = std::find_if(parent.children.begin(), parent.children.end(),
                                  [&](const ModuleSpec& spec) { return spec.name == name; });
  return found == parent.children.end() ? nullptr : &*found;
}

const Shape& weight_of(const ModuleSpec& spec) {
  return spec.parameters.at(0).shape;
}

// On the device where a weight is used. What lies apart would come together for torch's operators
// alone, and haul's own give other bits.
at::Tensor beside(const at::Tensor& weight, const at::Tensor& x) {
  return x.device() == weight.device() ? x : x.to(weight.device());
}

}  // namespace

bool has_child(const ModuleSpec& parent, std::string_view name) {
  return find_child(parent, name) != nullptr;
}

const ModuleSpec& child(const ModuleSpec& parent, std::string_view name) {
  const ModuleSpec* const found = find_child(parent, name);
  if (found == nullptr) {
    throw Error(ErrorKind::kInternal,
                fmt::format("a {} is described without a '{}'", parent.class_name, name));
  }
  return *found;
}

RmsNormImpl::RmsNormImpl(std::int64_t width, double epsilon) : epsilon_(epsilon) {
  weight = register_parameter("weight", at::ones({width}));
}

at::Tensor RmsNormImpl::forward(const at::Tensor& x) const {
  return kernels::rms_norm(beside(weight, x), weight, epsilon_);
}

Operand RmsNormImpl::later(const at::Tensor& x) const {
  return {beside(weight, x), {weight, {}, epsilon_}};
}

at::Tensor QuickLayerNormImpl::forward(const at::Tensor& x) const {
  return kernels::layer_norm(beside(weight, x), weight, bias, options.eps());
}

Operand QuickLayerNormImpl::later(const at::Tensor& x) const {
  return {beside(weight, x), {weight, bias, options.eps()}};
}

at::Tensor QuickLinearImpl::forward(const Operand& x) {
  if (is_spread()) return whole(kernels::linear(x, {weight, {}}), bias);
  return kernels::linear(x, {weight, bias});
}

at::Tensor QuickLinearImpl::added_to(const at::Tensor& residual, const at::Tensor& x) {
  if (is_spread()) return residual + forward(x);
  return kernels::linear(x, weight, bias, beside(weight, residual));
}

at::Tensor QuickLinearImpl::curved_by(const Activation& act, const Operand& x) {
  if (!act.curve || is_spread()) return act(forward(x));
  return kernels::linear(x, {weight, bias}, act.curve);
}

at::Tensor QuickLinearImpl::gated_by(QuickLinearImpl& gate, const Activation& act,
                                     const Operand& x) {
  if (act.curve)
    return kernels::gated_pair(x, {gate.weight, gate.bias}, {weight, bias}, *act.curve);
  const at::Tensor normed = x.value();
  return act(gate.forward(normed)) * kernels::linear(normed, weight, bias);
}

Conv1DImpl::Conv1DImpl(std::int64_t in, std::int64_t out) {
  weight_ = register_parameter("weight", at::empty({in, out}));
  bias_ = register_parameter("bias", at::empty({out}));
}

at::Tensor Conv1DImpl::forward(const Operand& x) const {
  if (is_spread()) return whole(kernels::conv1d(x, {weight_, {}}), bias_);
  return kernels::conv1d(x, {weight_, bias_});
}

at::Tensor Conv1DImpl::added_to(const at::Tensor& residual, const at::Tensor& x) const {
  if (is_spread()) return residual + forward(x);
  return kernels::conv1d(x, weight_, bias_, beside(weight_, residual));
}

at::Tensor Conv1DImpl::curved_by(const Activation& act, const Operand& x) const {
  if (!act.curve || is_spread()) return act(forward(x));
  return kernels::conv1d(x, {weight_, bias_}, act.curve);
}

std::vector<at::Tensor> through_each(const Operand& x,
                                     std::initializer_list<SharingLinear> layers) {
  std::vector<kernels::LinearWeights> weights;
  for (const SharingLinear& layer : layers) weights.push_back({layer->weight, layer->bias});
  return kernels::linears(x, weights);
}

SharingLinear linear(const ModuleSpec& parent, std::string_view name) {
  const ModuleSpec& spec = child(parent, name);
  const Shape& weight = weight_of(spec);
  return SharingLinear(
      torch::nn::LinearOptions(weight[1], weight[0]).bias(spec.parameters.size() > 1));
}

Conv1D conv1d(const ModuleSpec& parent, std::string_view name) {
  const Shape& weight = weight_of(child(parent, name));
  return Conv1D(weight[0], weight[1]);
}

SharingEmbedding embedding(const ModuleSpec& parent, std::string_view name) {
  const Shape& weight = weight_of(child(parent, name));
  return SharingEmbedding(torch::nn::EmbeddingOptions(weight[0], weight[1]));
}

QuickLayerNorm layer_norm(const ModuleSpec& parent, std::string_view name, double epsilon) {
  return QuickLayerNorm(torch::nn::LayerNormOptions(weight_of(child(parent, name))).eps(epsilon));
}

RmsNorm rms_norm(const ModuleSpec& parent, std::string_view name, double epsilon) {
  return RmsNorm(weight_of(child(parent, name))[0], epsilon);
}

}  // namespace haul::models
