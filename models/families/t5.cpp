#include <array>
#include <cmath>
#include <limits>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log.h>
#include <ATen/ops/where.h>
#include <torch/nn/modules/container/modulelist.h>

#include "haul/error.h"
#include "models/blocks/activation.h"
#include "models/blocks/attention.h"
#include "models/blocks/stock.h"
#include "models/families/family.h"
#include "models/families/tokens.h"

namespace haul::models {
namespace {

struct Settings {
  std::int64_t head_size;
  double epsilon;
  Activation act;
  std::int64_t buckets;
  std::int64_t max_distance;
};

// What the layers of a stack share in a pass.
struct Pass {
  AttentionMask mask;     // with the bias of places
  AttentionMask crossed;  // over what the encoder gave
  at::Tensor encoded;     // (B, E, C); undefined: an encoder's pass
  KvCache* cache;
};

class T5AttentionImpl : public torch::nn::Module {
 public:
  T5AttentionImpl(const ModuleSpec& spec, const Settings& settings, std::int64_t layer)
      : settings_(settings), layer_(layer) {
    q_ = register_module("q", linear(spec, "q"));
    k_ = register_module("k", linear(spec, "k"));
    v_ = register_module("v", linear(spec, "v"));
    o_ = register_module("o", linear(spec, "o"));
    if (has_child(spec, "relative_attention_bias")) {
      bias_ =
          register_module("relative_attention_bias", embedding(spec, "relative_attention_bias"));
    }
  }

  // x + what attention to `normed` gives
  at::Tensor forward(const at::Tensor& x, const at::Tensor& normed, const Pass& pass) {
    const LayerTokens tokens{layer_, heads(q_, normed), keys_values(normed)};
    return o_->added_to(x, attend(tokens, pass.cache, pass.mask, 1.0));
  }

  // Over what the encoder gave, whose keys and values stay the same from pass to pass.
  at::Tensor cross(const at::Tensor& x, const at::Tensor& normed, const Pass& pass) {
    KeysValues seen;
    if (pass.cache != nullptr) seen = pass.cache->crossed(layer_);
    if (!seen.keys.defined()) {
      seen = keys_values(pass.encoded);
      if (pass.cache != nullptr) pass.cache->keep_crossed(layer_, seen);
    }
    return o_->added_to(x, attend(heads(q_, normed), seen, pass.crossed, 1.0));
  }

  // (1, H, T, S), for tokens after `past` others.
  at::Tensor bias(std::int64_t tokens, std::int64_t past, bool both_ways) {
    const at::TensorOptions options = at::TensorOptions().dtype(at::kLong);
    const at::Tensor query = at::arange(past, past + tokens, options).unsqueeze(1);
    const at::Tensor distance = at::arange(past + tokens, options).unsqueeze(0) - query;  // (T, S)
    const at::Tensor numbers = buckets_of(distance, both_ways).to(bias_->weight.device());
    return bias_(numbers).permute({2, 0, 1}).unsqueeze(0);
  }

 private:
  at::Tensor heads(SharingLinear& projection, const at::Tensor& x) {
    return split_heads(projection(x), settings_.head_size);
  }
  KeysValues keys_values(const at::Tensor& x) { return {heads(k_, x), heads(v_, x)}; }

  // Short distances have a bucket each, longer ones share theirs with ever more.
  at::Tensor buckets_of(const at::Tensor& distance, bool both_ways) const {
    std::int64_t count = settings_.buckets;
    at::Tensor result;
    at::Tensor steps;
    if (both_ways) {
      count /= 2;
      result = (distance > 0).to(at::kLong) * count;
      steps = distance.abs();
    } else {
      steps = -distance.clamp_max(0);
    }
    const std::int64_t exact = count / 2;
    const double range =
        std::log(static_cast<double>(settings_.max_distance) / static_cast<double>(exact));
    const at::Tensor far =
        (exact + (at::log(steps.to(at::kFloat) / exact) / range * (count - exact)).to(at::kLong))
            .clamp_max(count - 1);
    const at::Tensor bucket = at::where(steps < exact, steps, far);
    return both_ways ? result + bucket : bucket;
  }

  Settings settings_;
  std::int64_t layer_;
  SharingLinear q_{nullptr}, k_{nullptr}, v_{nullptr}, o_{nullptr};
  SharingEmbedding bias_{nullptr};
};
TORCH_MODULE(T5Attention);

// Attention, to itself or to the encoder, behind a norm.
class T5LayerAttentionImpl : public torch::nn::Module {
 public:
  T5LayerAttentionImpl(const ModuleSpec& spec, const Settings& settings, std::int64_t layer)
      : crosses_(has_child(spec, "EncDecAttention")) {
    const char* const name = crosses_ ? "EncDecAttention" : "SelfAttention";
    attention = register_module(name, T5Attention(child(spec, name), settings, layer));
    layer_norm_ = register_module("layer_norm", rms_norm(spec, "layer_norm", settings.epsilon));
  }

  at::Tensor forward(const at::Tensor& x, const Pass& pass) {
    const at::Tensor normed = layer_norm_(x);
    return crosses_ ? attention->cross(x, normed, pass) : attention(x, normed, pass);
  }

  T5Attention attention{nullptr};

 private:
  bool crosses_;
  RmsNorm layer_norm_{nullptr};
};
TORCH_MODULE(T5LayerAttention);

class T5DenseImpl : public torch::nn::Module {
 public:
  T5DenseImpl(const ModuleSpec& spec, const Settings& settings) : act_(settings.act) {
    if (has_child(spec, "wi_0")) {
      wi_ = register_module("wi_0", linear(spec, "wi_0"));
      gated_ = register_module("wi_1", linear(spec, "wi_1"));
    } else {
      wi_ = register_module("wi", linear(spec, "wi"));
    }
    wo_ = register_module("wo", linear(spec, "wo"));
  }

  // x + what `normed` becomes
  at::Tensor forward(const at::Tensor& x, const at::Tensor& normed) {
    const at::Tensor inner = gated_ ? gated_->gated_by(*wi_, act_, normed) : act_(wi_(normed));
    return wo_->added_to(x, inner.to(wo_->weight.scalar_type()));
  }

 private:
  Activation act_;
  SharingLinear wi_{nullptr}, gated_{nullptr}, wo_{nullptr};
};
TORCH_MODULE(T5Dense);

class T5LayerFFImpl : public torch::nn::Module {
 public:
  T5LayerFFImpl(const ModuleSpec& spec, const Settings& settings) {
    dense_ = register_module("DenseReluDense", T5Dense(child(spec, "DenseReluDense"), settings));
    layer_norm_ = register_module("layer_norm", rms_norm(spec, "layer_norm", settings.epsilon));
  }

  at::Tensor forward(const at::Tensor& x) { return dense_(x, layer_norm_(x)); }

 private:
  T5Dense dense_{nullptr};
  RmsNorm layer_norm_{nullptr};
};
TORCH_MODULE(T5LayerFF);

// Half precision overflows in large models; the largest numbers stand for what is beyond them.
at::Tensor bounded(const at::Tensor& x) {
  if (x.scalar_type() != at::kHalf) return x;
  const double most = x.isinf().any().item<bool>() ? 65504.0 - 1000 : 65504.0;
  return x.clamp(-most, most);
}

class T5BlockImpl : public torch::nn::Module {
 public:
  T5BlockImpl(const ModuleSpec& spec, const Settings& settings, std::int64_t number) {
    const ModuleSpec& layers = child(spec, "layer");
    layer_ = register_module("layer", torch::nn::ModuleList());
    attention_ = T5LayerAttention(layers.children.front(), settings, number);
    layer_->push_back(attention_);
    if (layers.children.size() > 2) {
      crossing_ = T5LayerAttention(layers.children[1], settings, number);
      layer_->push_back(crossing_);
    }
    feed_forward_ = T5LayerFF(layers.children.back(), settings);
    layer_->push_back(feed_forward_);
  }

  at::Tensor forward(const at::Tensor& x, const Pass& pass) {
    at::Tensor y = bounded(attention_(x, pass));
    if (crossing_ && pass.encoded.defined()) y = bounded(crossing_(y, pass));
    return bounded(feed_forward_(y));
  }

  T5Attention& attention() { return attention_->attention; }

 private:
  torch::nn::ModuleList layer_{nullptr};
  T5LayerAttention attention_{nullptr}, crossing_{nullptr};
  T5LayerFF feed_forward_{nullptr};
};
TORCH_MODULE(T5Block);

class T5StackImpl : public torch::nn::Module {
 public:
  T5StackImpl(const ModuleSpec& spec, const Settings& settings, bool decodes) : decodes_(decodes) {
    embed_tokens = register_module("embed_tokens", embedding(spec, "embed_tokens"));
    block_ = register_module("block", torch::nn::ModuleList());
    for (const ModuleSpec& block : child(spec, "block").children) {
      block_->push_back(T5Block(block, settings, static_cast<std::int64_t>(block_->size())));
    }
    final_layer_norm_ =
        register_module("final_layer_norm", rms_norm(spec, "final_layer_norm", settings.epsilon));
  }

  at::Tensor forward(const Inputs& inputs) {
    at::Tensor x = embed_tokens(inputs.ids);
    const std::int64_t tokens = inputs.ids.size(1);
    const std::int64_t past = inputs.cache == nullptr ? 0 : inputs.cache->length();
    const AttentionMask places = decodes_
                                     ? causal_mask({tokens, past, 0, inputs.attended, x.device()})
                                     : full_mask(inputs.attended);
    T5Attention& first = block_->ptr(0)->as<T5BlockImpl>()->attention();
    const at::Tensor bias = first->bias(tokens, past, !decodes_).to(x.scalar_type());
    Pass pass{with_bias(places, bias), {}, {}, inputs.cache};
    if (decodes_) {
      pass.encoded = inputs.encoded;
      pass.crossed = full_mask(inputs.encoded_attended);
    }
    for (const auto& block : *block_) x = block->as<T5BlockImpl>()->forward(x, pass);
    return final_layer_norm_(last_tokens(x, inputs.last));
  }

  SharingEmbedding embed_tokens{nullptr};

 private:
  bool decodes_;
  torch::nn::ModuleList block_{nullptr};
  RmsNorm final_layer_norm_{nullptr};
};
TORCH_MODULE(T5Stack);

Settings read_settings(const core::ConfigReader& config, const Dimensions& d) {
  const std::string text = config.text("feed_forward_proj", "relu");
  std::string function = text.starts_with("gated-") ? text.substr(6) : text;
  if (text == "gated-gelu") function = "gelu_new";
  return {d.head_size, config.number("layer_norm_epsilon", 1e-6),
          activation(config.text("dense_act_fn", function)),
          config.size({"relative_attention_num_buckets"}, 32),
          config.size({"relative_attention_max_distance"}, 128)};
}

// Encoder and decoder and, where there is one, the head; or the encoder alone.
class T5 : public Model {
 public:
  T5(const core::ConfigReader& config, const Description& description) {
    const ModuleSpec& root = description.root;
    const Settings settings = read_settings(config, *description.dimensions);
    if (config.flag("is_decoder", false)) {
      throw Error(ErrorKind::kUnsupported, "haul cannot run a T5 encoder that is a decoder");
    }
    shared_ = register_module("shared", embedding(root, "shared"));
    encoder_ = register_module("encoder", T5Stack(child(root, "encoder"), settings, false));
    if (has_child(root, "decoder")) {
      decoder_ = register_module("decoder", T5Stack(child(root, "decoder"), settings, true));
    }
    if (has_child(root, "lm_head")) {
      head_ = register_module("lm_head", linear(root, "lm_head"));
      // Newer models do not scale. Older configs say so by a head that is not tied.
      if (config.flag("scale_decoder_outputs", config.flag("tie_word_embeddings", true))) {
        scale_ = 1 / std::sqrt(static_cast<double>(description.dimensions->hidden));
      }
    }
    for (const auto& group : description.tied) {
      for (const std::string& name : group) share(name);
    }
  }

  at::Tensor encode(const Inputs& inputs) override { return encoder_(inputs); }
  at::Tensor hidden(const Inputs& inputs) override { return encode(inputs); }

  at::Tensor forward(const Inputs& inputs) override {
    if (!decoder_) return encode(inputs);
    at::Tensor x = decoder_(inputs);
    if (!head_) return x;
    return head_(scale_ == 1 ? x : x * scale_);
  }

  std::vector<std::string> wide_in_f16() const override { return {".wo."}; }

 private:
  void share(const std::string& name) {
    const at::Tensor& table = shared_->weight;
    if (name == "encoder.embed_tokens.weight") encoder_->embed_tokens->share(table);
    if (name == "decoder.embed_tokens.weight") decoder_->embed_tokens->share(table);
    if (name == "lm_head.weight") head_->share(table);
  }

  SharingEmbedding shared_{nullptr};
  T5Stack encoder_{nullptr}, decoder_{nullptr};
  SharingLinear head_{nullptr};
  double scale_ = 1;
};

std::shared_ptr<Model> make(const core::ConfigReader& config, const Description& description) {
  return std::make_shared<T5>(config, description);
}

constexpr std::array<std::string_view, 4> kArchitectures = {
    "T5ForConditionalGeneration", "T5WithLMHeadModel", "T5Model", "T5EncoderModel"};

}  // namespace

extern const Family kT5Family = {kArchitectures, make};

}  // namespace haul::models
