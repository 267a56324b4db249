#include <array>
#include <bit>
#include <cmath>

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <torch/nn/modules/container/modulelist.h>

#include "models/blocks/activation.h"
#include "models/blocks/attention.h"
#include "models/blocks/stock.h"
#include "models/families/family.h"
#include "models/families/tokens.h"
#include "models/families/with_head.h"

namespace haul::models {
namespace {

// How much each head dislikes distance.
at::Tensor slopes(std::int64_t heads) {
  const auto count = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  const auto base = [](std::int64_t of) {
    return std::pow(2.0F, -std::pow(2.0F, -(std::log2(static_cast<float>(of)) - 3)));
  };
  std::vector<float> result;
  for (std::int64_t i = 1; i <= count; ++i) {
    result.push_back(std::pow(base(count), static_cast<float>(i)));
  }
  for (std::int64_t i = 0; count + i < heads; ++i) {
    result.push_back(std::pow(base(2 * count), static_cast<float>(2 * i + 1)));
  }
  return at::tensor(result);
}

struct Pass {
  AttentionMask mask;  // with the bias
  KvCache* cache;
};

class BloomAttentionImpl : public torch::nn::Module {
 public:
  BloomAttentionImpl(const ModuleSpec& spec, const Dimensions& d, std::int64_t layer)
      : head_size_(d.head_size), layer_(layer) {
    query_key_value_ = register_module("query_key_value", linear(spec, "query_key_value"));
    dense_ = register_module("dense", linear(spec, "dense"));
  }

  // Added to the residual.
  at::Tensor forward(const at::Tensor& residual, const Operand& x, const Pass& pass) {
    const at::Tensor fused = query_key_value_(x);
    const auto parts = fused.view({fused.size(0), fused.size(1), -1, 3, head_size_})
                           .permute({3, 0, 2, 1, 4})
                           .unbind(0);
    return dense_->added_to(
        residual, attend({layer_, parts[0], {parts[1], parts[2]}}, pass.cache, pass.mask));
  }

 private:
  std::int64_t head_size_;
  std::int64_t layer_;
  SharingLinear query_key_value_{nullptr}, dense_{nullptr};
};
TORCH_MODULE(BloomAttention);

class BloomMLPImpl : public torch::nn::Module {
 public:
  explicit BloomMLPImpl(const ModuleSpec& spec) {
    up_ = register_module("dense_h_to_4h", linear(spec, "dense_h_to_4h"));
    down_ = register_module("dense_4h_to_h", linear(spec, "dense_4h_to_h"));
  }

  // Added to the residual.
  at::Tensor forward(const at::Tensor& residual, const Operand& x) {
    return down_->added_to(residual, up_->curved_by(act_, x));
  }

 private:
  Activation act_ = activation("gelu_new");
  SharingLinear up_{nullptr}, down_{nullptr};
};
TORCH_MODULE(BloomMLP);

class BloomBlockImpl : public torch::nn::Module {
 public:
  BloomBlockImpl(const core::ConfigReader& config, const ModuleSpec& spec, const Dimensions& d,
                 std::int64_t layer)
      : after_norm_(config.flag("apply_residual_connection_post_layernorm", false)) {
    const double epsilon = config.number("layer_norm_epsilon", 1e-5);
    input_layernorm_ =
        register_module("input_layernorm", layer_norm(spec, "input_layernorm", epsilon));
    self_attention_ =
        register_module("self_attention", BloomAttention(child(spec, "self_attention"), d, layer));
    post_attention_layernorm_ = register_module(
        "post_attention_layernorm", layer_norm(spec, "post_attention_layernorm", epsilon));
    mlp_ = register_module("mlp", BloomMLP(child(spec, "mlp")));
  }

  at::Tensor forward(const at::Tensor& x, const Pass& pass) {
    const Operand normed = through(input_layernorm_, x);
    const at::Tensor attended = self_attention_(after_norm_ ? normed.x : x, normed, pass);
    const Operand again = through(post_attention_layernorm_, attended);
    return mlp_(after_norm_ ? again.x : attended, again);
  }

 private:
  Operand through(const QuickLayerNorm& norm, const at::Tensor& x) const {
    return after_norm_ ? Operand(norm->forward(x)) : norm->later(x);
  }

  bool after_norm_;  // what is added to lies behind the norm
  QuickLayerNorm input_layernorm_{nullptr}, post_attention_layernorm_{nullptr};
  BloomAttention self_attention_{nullptr};
  BloomMLP mlp_{nullptr};
};
TORCH_MODULE(BloomBlock);

class BloomModelImpl : public Model, public NumberedHeads {
 public:
  BloomModelImpl(const core::ConfigReader& config, const ModuleSpec& spec, const Dimensions& d)
      : heads_(d.heads), all_heads_(d.heads) {
    const double epsilon = config.number("layer_norm_epsilon", 1e-5);
    word_embeddings_ = register_module("word_embeddings", embedding(spec, "word_embeddings"));
    embedding_norm_ = register_module("word_embeddings_layernorm",
                                      layer_norm(spec, "word_embeddings_layernorm", epsilon));
    h_ = register_module("h", torch::nn::ModuleList());
    for (const ModuleSpec& block : child(spec, "h").children) {
      h_->push_back(BloomBlock(config, block, d, static_cast<std::int64_t>(h_->size())));
    }
    ln_f_ = register_module("ln_f", layer_norm(spec, "ln_f", epsilon));
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
    at::Tensor x = part.begin == 0 ? embedding_norm_(word_embeddings_(inputs.ids)) : given;
    Pass pass{causal_mask(mask_request(inputs, past, x.device())), inputs.cache};
    if (pass.mask.values.defined() || pass.mask.causal) {
      const at::Tensor bias =
          distances(inputs, past + inputs.ids.size(1), x).expand({-1, -1, inputs.ids.size(1), -1});
      pass.mask = with_bias(pass.mask, bias);
    } else {
      pass.mask.slopes = own_slopes();
      pass.mask.slope_copies = copies_;
    }
    for (std::size_t i = part.begin; i < part.end; ++i) {
      x = h_[i]->as<BloomBlockImpl>()->forward(x, pass);
    }
    return part.end < h_->size() ? x : ln_f_->later(last_tokens(x, inputs.last));
  }
  std::vector<std::string> layers() const override { return layer_names("h", h_->size()); }

  void take_heads(std::int64_t first, std::int64_t all) override {
    first_head_ = first;
    all_heads_ = all;
    slopes_.reset();
    copies_ = Copies();
  }
  bool can_be_replayed() const override { return true; }
  const at::Tensor& words() const { return word_embeddings_->weight; }

 private:
  SharingEmbedding word_embeddings_{nullptr};
  // (B or 1, H, 1, S): what is the same for all keys of a query makes no difference.
  at::Tensor distances(const Inputs& inputs, std::int64_t count, const at::Tensor& x) {
    at::Tensor places;
    if (inputs.attended.defined()) {
      const at::Tensor tokens = inputs.attended.to(at::kLong);
      places = (tokens.cumsum(-1) - 1) * tokens;  // (B, S)
    } else {
      places = at::arange(count, x.options().dtype(at::kLong)).unsqueeze(0);
    }
    return place_bias(copies_.of(own_slopes(), x.device()), places, x.scalar_type());
  }
  // Of the heads that are here.
  const at::Tensor& own_slopes() {
    if (!slopes_.defined()) slopes_ = slopes(all_heads_).narrow(0, first_head_, heads_);
    return slopes_;
  }

  std::int64_t heads_;
  std::int64_t first_head_ = 0;
  std::int64_t all_heads_;
  at::Tensor slopes_;
  Copies copies_;  // of the slopes, kept: a pass that is recorded can bring nothing from the host
  QuickLayerNorm embedding_norm_{nullptr}, ln_f_{nullptr};
  torch::nn::ModuleList h_{nullptr};
};
TORCH_MODULE(BloomModel);

std::shared_ptr<Model> make(const core::ConfigReader& config, const Description& description) {
  return bare_or_with_head<BloomModel>("transformer", config, description);
}

constexpr std::array<std::string_view, 3> kArchitectures = {
    "BloomForCausalLM", "BloomForSequenceClassification", "BloomModel"};

}  // namespace

extern const Family kBloomFamily = {kArchitectures, make};

}  // namespace haul::models
