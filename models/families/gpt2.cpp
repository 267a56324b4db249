#include <array>
#include <cmath>

#include <torch/nn/modules/container/modulelist.h>

#include "haul/error.h"
#include "models/blocks/activation.h"
#include "models/blocks/attention.h"
#include "models/blocks/stock.h"
#include "models/families/family.h"
#include "models/families/tokens.h"
#include "models/families/with_head.h"

namespace haul::models {
namespace {

struct Pass {
  AttentionMask mask;
  KvCache* cache;
};

class GPT2AttentionImpl : public torch::nn::Module {
 public:
  GPT2AttentionImpl(const core::ConfigReader& config, const ModuleSpec& spec, const Dimensions& d,
                    std::int64_t layer)
      : head_size_(d.head_size), layer_(layer) {
    if (config.flag("scale_attn_weights", true)) {
      scale_ = 1 / std::sqrt(static_cast<double>(d.head_size));
    }
    if (config.flag("scale_attn_by_inverse_layer_idx", false)) {
      scale_ /= static_cast<double>(layer + 1);
    }
    c_attn_ = register_module("c_attn", conv1d(spec, "c_attn"));
    c_proj_ = register_module("c_proj", conv1d(spec, "c_proj"));
  }

  // Added to the residual.
  at::Tensor forward(const at::Tensor& residual, const Operand& x, const Pass& pass) {
    const std::vector<at::Tensor> parts = c_attn_(x).chunk(3, -1);
    const LayerTokens tokens{
        layer_,
        split_heads(parts[0], head_size_),
        {split_heads(parts[1], head_size_), split_heads(parts[2], head_size_)}};
    return c_proj_->added_to(residual, attend(tokens, pass.cache, pass.mask, scale_));
  }

 private:
  std::int64_t head_size_;
  std::int64_t layer_;
  double scale_ = 1;
  Conv1D c_attn_{nullptr}, c_proj_{nullptr};
};
TORCH_MODULE(GPT2Attention);

class GPT2MLPImpl : public torch::nn::Module {
 public:
  GPT2MLPImpl(const core::ConfigReader& config, const ModuleSpec& spec)
      : act_(activation(config.text("activation_function", "gelu_new"))) {
    c_fc_ = register_module("c_fc", conv1d(spec, "c_fc"));
    c_proj_ = register_module("c_proj", conv1d(spec, "c_proj"));
  }

  // Added to the residual.
  at::Tensor forward(const at::Tensor& residual, const Operand& x) {
    return c_proj_->added_to(residual, c_fc_->curved_by(act_, x));
  }

 private:
  Activation act_;
  Conv1D c_fc_{nullptr}, c_proj_{nullptr};
};
TORCH_MODULE(GPT2MLP);

class GPT2BlockImpl : public torch::nn::Module {
 public:
  GPT2BlockImpl(const core::ConfigReader& config, const ModuleSpec& spec, const Dimensions& d,
                std::int64_t layer) {
    const double epsilon = config.number("layer_norm_epsilon", 1e-5);
    ln_1_ = register_module("ln_1", layer_norm(spec, "ln_1", epsilon));
    attn_ = register_module("attn", GPT2Attention(config, child(spec, "attn"), d, layer));
    ln_2_ = register_module("ln_2", layer_norm(spec, "ln_2", epsilon));
    mlp_ = register_module("mlp", GPT2MLP(config, child(spec, "mlp")));
  }

  at::Tensor forward(const at::Tensor& x, const Pass& pass) {
    const at::Tensor attended = attn_(x, ln_1_->later(x), pass);
    return mlp_(attended, ln_2_->later(attended));
  }

 private:
  QuickLayerNorm ln_1_{nullptr}, ln_2_{nullptr};
  GPT2Attention attn_{nullptr};
  GPT2MLP mlp_{nullptr};
};
TORCH_MODULE(GPT2Block);

class GPT2ModelImpl : public Model {
 public:
  GPT2ModelImpl(const core::ConfigReader& config, const ModuleSpec& spec, const Dimensions& d) {
    if (config.flag("add_cross_attention", false)) {
      throw Error(ErrorKind::kUnsupported, "haul cannot run a GPT-2 with cross attention");
    }
    wte_ = register_module("wte", embedding(spec, "wte"));
    wpe_ = register_module("wpe", embedding(spec, "wpe"));
    h_ = register_module("h", torch::nn::ModuleList());
    for (const ModuleSpec& block : child(spec, "h").children) {
      h_->push_back(GPT2Block(config, block, d, static_cast<std::int64_t>(h_->size())));
    }
    ln_f_ = register_module("ln_f",
                            layer_norm(spec, "ln_f", config.number("layer_norm_epsilon", 1e-5)));
  }

  at::Tensor forward(const Inputs& inputs) override {
    return forward_part(inputs, {0, h_->size()}, {});
  }

  at::Tensor forward_part(const Inputs& inputs, const Layers& part,
                          const at::Tensor& given) override {
    return for_head(inputs, part, given).value();
  }
  Operand for_head(const Inputs& inputs, const Layers& part, const at::Tensor& given) {
    const std::int64_t past = inputs.cache == nullptr ? 0 : inputs.cache->length();
    at::Tensor x = given;
    if (part.begin == 0) {
      x = wte_(inputs.ids) + wpe_(positions_of(inputs, past));
      if (inputs.types.defined()) x = x + wte_(inputs.types);
    }
    const Pass pass{causal_mask(mask_request(inputs, past, x.device())), inputs.cache};
    for (std::size_t i = part.begin; i < part.end; ++i) {
      x = h_[i]->as<GPT2BlockImpl>()->forward(x, pass);
    }
    return part.end < h_->size() ? x : ln_f_->later(last_tokens(x, inputs.last));
  }
  std::vector<std::string> layers() const override { return layer_names("h", h_->size()); }

  std::int64_t most_positions() const override { return wpe_->weight.size(0); }
  bool can_be_replayed() const override { return true; }
  const at::Tensor& words() const { return wte_->weight; }

 private:
  SharingEmbedding wte_{nullptr};
  SharingEmbedding wpe_{nullptr};
  torch::nn::ModuleList h_{nullptr};
  QuickLayerNorm ln_f_{nullptr};
};
TORCH_MODULE(GPT2Model);

std::shared_ptr<Model> make(const core::ConfigReader& config, const Description& description) {
  return bare_or_with_head<GPT2Model>("transformer", config, description);
}

constexpr std::array<std::string_view, 3> kArchitectures = {
    "GPT2LMHeadModel", "GPT2ForSequenceClassification", "GPT2Model"};

}  // namespace

extern const Family kGpt2Family = {kArchitectures, make};

}  // namespace haul::models
