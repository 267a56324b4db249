#pragma once

// Stock modules, shaped as a description says, so that a model has the tensors of its description
// by construction.

#include <initializer_list>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "haul/description.h"
#include "kernels/operand.h"
#include "models/blocks/activation.h"
#include "models/blocks/spread.h"

namespace haul::models {

using kernels::Operand;

// REQUIRES: the module has such a child.
const ModuleSpec& child(const ModuleSpec& parent, std::string_view name);
bool has_child(const ModuleSpec& parent, std::string_view name);

// A module whose weight may be another's.
template <typename Base>
class Sharing : public Base {
 public:
  using Base::Base;
  void share(const at::Tensor& other) {
    this->weight = other;
    this->parameters_["weight"] = other;
  }
  void share_bias(const at::Tensor& other) requires requires(Base base) { base.bias; }
  {
    this->bias = other;
    this->parameters_["bias"] = other;
  }
};
// A Linear, and the same faster where it decodes.
class QuickLinearImpl : public Sharing<torch::nn::LinearImpl>, public PartOfSum {
 public:
  using Sharing::Sharing;
  at::Tensor forward(const Operand& x);
  // residual + forward(x)
  at::Tensor added_to(const at::Tensor& residual, const at::Tensor& x);
  // act(forward(x))
  at::Tensor curved_by(const Activation& act, const Operand& x);
  // act(gate(x)) * forward(x)
  at::Tensor gated_by(QuickLinearImpl& gate, const Activation& act, const Operand& x);
};
using SharingLinear = torch::nn::ModuleHolder<QuickLinearImpl>;
// x through each of them.
std::vector<at::Tensor> through_each(const Operand& x, std::initializer_list<SharingLinear> layers);
// Of torch's name, by which plans know that rows of it are looked up.
class EmbeddingImpl : public Sharing<torch::nn::EmbeddingImpl> {
 public:
  using Sharing::Sharing;
};
using SharingEmbedding = torch::nn::ModuleHolder<EmbeddingImpl>;

// A linear layer whose weight lies the other way round: (in, out).
class Conv1DImpl : public torch::nn::Module, public PartOfSum {
 public:
  Conv1DImpl(std::int64_t in, std::int64_t out);
  at::Tensor forward(const Operand& x) const;
  // residual + forward(x)
  at::Tensor added_to(const at::Tensor& residual, const at::Tensor& x) const;
  // act(forward(x))
  at::Tensor curved_by(const Activation& act, const Operand& x) const;

 private:
  at::Tensor weight_, bias_;
};
TORCH_MODULE(Conv1D);

// A LayerNorm, and the same faster on GPUs.
class QuickLayerNormImpl : public torch::nn::LayerNormImpl {
 public:
  using LayerNormImpl::LayerNormImpl;
  at::Tensor forward(const at::Tensor& x) const;
  // forward(x), left to the layer that multiplies it.
  Operand later(const at::Tensor& x) const;
};
TORCH_MODULE(QuickLayerNorm);

// A norm without mean and bias, in float32 inside.
class RmsNormImpl : public torch::nn::Module {
 public:
  RmsNormImpl(std::int64_t width, double epsilon);
  at::Tensor forward(const at::Tensor& x) const;
  // forward(x), left to the layer that multiplies it.
  Operand later(const at::Tensor& x) const;

  at::Tensor weight;

 private:
  double epsilon_;
};
TORCH_MODULE(RmsNorm);

// The child of that name, as its parameters are.
SharingLinear linear(const ModuleSpec& parent, std::string_view name);
Conv1D conv1d(const ModuleSpec& parent, std::string_view name);
SharingEmbedding embedding(const ModuleSpec& parent, std::string_view name);
QuickLayerNorm layer_norm(const ModuleSpec& parent, std::string_view name, double epsilon);
RmsNorm rms_norm(const ModuleSpec& parent, std::string_view name, double epsilon);

}  // namespace haul::models
