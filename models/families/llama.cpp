// Llama, and the models that differ from it by a few choices: Mistral, Qwen2, Qwen3.

#include <array>

#include <fmt/format.h>
#include <torch/nn/modules/container/modulelist.h>

#include "haul/error.h"
#include "models/blocks/activation.h"
#include "models/blocks/attention.h"
#include "models/blocks/rope.h"
#include "models/blocks/stock.h"
#include "models/families/family.h"
#include "models/families/tokens.h"
#include "models/families/with_head.h"

namespace haul::models {
namespace {

struct Settings {
  std::int64_t head_size;
  double epsilon;
  Activation act;
};

// What all layers of a pass share.
struct Pass {
  Rotation rotation;
  AttentionMask full;
  AttentionMask windowed;
  KvCache* cache;
};

class LlamaAttentionImpl : public torch::nn::Module {
 public:
  LlamaAttentionImpl(const ModuleSpec& spec, const Settings& settings, std::int64_t layer,
                     bool windowed)
      : head_size_(settings.head_size), layer_(layer), windowed_(windowed) {
    q_proj_ = register_module("q_proj", linear(spec, "q_proj"));
    k_proj_ = register_module("k_proj", linear(spec, "k_proj"));
    v_proj_ = register_module("v_proj", linear(spec, "v_proj"));
    o_proj_ = register_module("o_proj", linear(spec, "o_proj"));
    if (!has_child(spec, "q_norm")) return;
    q_norm_ = register_module("q_norm", rms_norm(spec, "q_norm", settings.epsilon));
    k_norm_ = register_module("k_norm", rms_norm(spec, "k_norm", settings.epsilon));
  }

  // x + what attention to `normed` gives
  at::Tensor forward(const at::Tensor& x, const Operand& normed, const Pass& pass) {
    const std::vector<at::Tensor> parts = through_each(normed, {q_proj_, k_proj_, v_proj_});
    at::Tensor queries = split_heads(parts[0], head_size_);
    KeysValues added{split_heads(parts[1], head_size_), split_heads(parts[2], head_size_)};
    if (q_norm_) {
      queries = q_norm_(queries);
      added.keys = k_norm_(added.keys);
    }
    const AttentionMask& mask = windowed_ ? pass.windowed : pass.full;
    return o_proj_->added_to(x, attend({layer_, queries, added, &pass.rotation}, pass.cache, mask));
  }

 private:
  std::int64_t head_size_;
  std::int64_t layer_;
  bool windowed_;
  SharingLinear q_proj_{nullptr}, k_proj_{nullptr}, v_proj_{nullptr}, o_proj_{nullptr};
  RmsNorm q_norm_{nullptr}, k_norm_{nullptr};
};
TORCH_MODULE(LlamaAttention);

class LlamaMLPImpl : public torch::nn::Module {
 public:
  LlamaMLPImpl(const ModuleSpec& spec, const Settings& settings) : act_(settings.act) {
    gate_proj_ = register_module("gate_proj", linear(spec, "gate_proj"));
    up_proj_ = register_module("up_proj", linear(spec, "up_proj"));
    down_proj_ = register_module("down_proj", linear(spec, "down_proj"));
  }

  // x + what `normed` becomes
  at::Tensor forward(const at::Tensor& x, const Operand& normed) {
    return down_proj_->added_to(x, up_proj_->gated_by(*gate_proj_, act_, normed));
  }

 private:
  Activation act_;
  SharingLinear gate_proj_{nullptr}, up_proj_{nullptr}, down_proj_{nullptr};
};
TORCH_MODULE(LlamaMLP);

class LlamaDecoderLayerImpl : public torch::nn::Module {
 public:
  LlamaDecoderLayerImpl(const ModuleSpec& spec, const Settings& settings, std::int64_t layer,
                        bool windowed) {
    self_attn_ = register_module(
        "self_attn", LlamaAttention(child(spec, "self_attn"), settings, layer, windowed));
    mlp_ = register_module("mlp", LlamaMLP(child(spec, "mlp"), settings));
    input_layernorm_ =
        register_module("input_layernorm", rms_norm(spec, "input_layernorm", settings.epsilon));
    post_attention_layernorm_ = register_module(
        "post_attention_layernorm", rms_norm(spec, "post_attention_layernorm", settings.epsilon));
  }

  at::Tensor forward(const at::Tensor& x, const Pass& pass) {
    const at::Tensor attended = self_attn_(x, input_layernorm_->later(x), pass);
    return mlp_(attended, post_attention_layernorm_->later(attended));
  }

 private:
  LlamaAttention self_attn_{nullptr};
  LlamaMLP mlp_{nullptr};
  RmsNorm input_layernorm_{nullptr}, post_attention_layernorm_{nullptr};
};
TORCH_MODULE(LlamaDecoderLayer);

constexpr std::string_view kWindowed = "sliding_attention";
constexpr std::string_view kFull = "full_attention";

// A kind of attention that is not known would be taken for a full one.
void check_layer_types(const core::ConfigReader& config) {
  const core::Json* const types =
      config.has("layer_types") ? config.find({"layer_types"}) : nullptr;
  if (types == nullptr || !types->is_array()) return;
  for (const core::Json& type : *types) {
    if (type == kWindowed || type == kFull) continue;
    throw Error(ErrorKind::kUnsupported,
                fmt::format("\"layer_types\" has {}, which haul cannot compute",
                            type.dump(-1, ' ', true, core::Json::error_handler_t::replace)),
                fmt::format("it knows \"{}\" and \"{}\"", kFull, kWindowed));
  }
}

// Which layers look at a window of tokens alone.
std::vector<bool> windowed_layers(const core::ConfigReader& config, const Dimensions& d) {
  std::vector<bool> result(static_cast<std::size_t>(d.layers), d.windowed_layers == d.layers);
  if (d.windowed_layers == 0 || d.windowed_layers == d.layers) return result;
  const core::Json* const types =
      config.has("layer_types") ? config.find({"layer_types"}) : nullptr;
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = types != nullptr ? types->at(i) == kWindowed
                                 : static_cast<std::int64_t>(i) >= d.layers - d.windowed_layers;
  }
  return result;
}

class LlamaModelImpl : public Model {
 public:
  LlamaModelImpl(const core::ConfigReader& config, const ModuleSpec& spec, const Dimensions& d)
      : window_(d.sliding_window) {
    const Settings settings{d.head_size, config.number("rms_norm_eps", 1e-6),
                            activation(config.text("hidden_act", "silu"))};
    embed_tokens_ = register_module("embed_tokens", embedding(spec, "embed_tokens"));
    layers_ = register_module("layers", torch::nn::ModuleList());
    check_layer_types(config);
    const std::vector<bool> windowed = windowed_layers(config, d);
    for (const bool is : windowed) windows_.push_back(is ? d.sliding_window : 0);
    for (const ModuleSpec& layer : child(spec, "layers").children) {
      const std::size_t i = layers_->size();
      layers_->push_back(
          LlamaDecoderLayer(layer, settings, static_cast<std::int64_t>(i), windowed[i]));
    }
    norm_ = register_module("norm", rms_norm(spec, "norm", settings.epsilon));
    rotary_emb_ =
        register_module("rotary_emb", RotaryEmbedding(config, d.head_size, d.max_positions));
  }

  at::Tensor forward(const Inputs& inputs) override {
    return forward_part(inputs, {0, layers_->size()}, {});
  }

  at::Tensor forward_part(const Inputs& inputs, const Layers& part,
                          const at::Tensor& given) override {
    return for_head(inputs, part, given).value();
  }
  Operand for_head(const Inputs& inputs, const Layers& part, const at::Tensor& given) {
    at::Tensor x = part.begin == 0 ? embed_tokens_(inputs.ids) : given;  // (B, T, C)
    const std::int64_t tokens = inputs.ids.size(1);
    const std::int64_t past = inputs.cache == nullptr ? 0 : inputs.cache->length();
    const at::Tensor positions = positions_of(inputs, past);
    MaskRequest request = mask_request(inputs, past, x.device());
    Pass pass{rotary_emb_->forward(positions, past + tokens, x.scalar_type()),
              causal_mask(request),
              {},
              inputs.cache};
    request.window = window_;
    if (window_ > 0) pass.windowed = window_ < past + tokens ? causal_mask(request) : pass.full;
    for (std::size_t i = part.begin; i < part.end; ++i) {
      x = layers_[i]->as<LlamaDecoderLayerImpl>()->forward(x, pass);
    }
    return part.end < layers_->size() ? x : norm_->later(last_tokens(x, inputs.last));
  }
  std::vector<std::string> layers() const override {
    return layer_names("layers", layers_->size());
  }

  std::vector<std::int64_t> windows() const override { return windows_; }
  bool can_be_replayed() const override { return !rotary_emb_->looks_at_length(); }

  const at::Tensor& words() const { return embed_tokens_->weight; }

 private:
  SharingEmbedding embed_tokens_{nullptr};
  std::int64_t window_;
  std::vector<std::int64_t> windows_;
  torch::nn::ModuleList layers_{nullptr};
  RmsNorm norm_{nullptr};
  RotaryEmbedding rotary_emb_{nullptr};
};
TORCH_MODULE(LlamaModel);

std::shared_ptr<Model> make(const core::ConfigReader& config, const Description& description) {
  return bare_or_with_head<LlamaModel>("model", config, description);
}

constexpr std::array<std::string_view, 12> kArchitectures = {
    "LlamaForCausalLM",   "LlamaForSequenceClassification",   "LlamaModel",
    "MistralForCausalLM", "MistralForSequenceClassification", "MistralModel",
    "Qwen2ForCausalLM",   "Qwen2ForSequenceClassification",   "Qwen2Model",
    "Qwen3ForCausalLM",   "Qwen3ForSequenceClassification",   "Qwen3Model",
};

}  // namespace

extern const Family kLlamaFamily = {kArchitectures, make};

}  // namespace haul::models
