#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/describe/family.h"
#include "core/describe/modules.h"
#include "core/describe/rotary.h"

namespace haul::core {
namespace {

// Where the models of this family differ.
struct Variant {
  std::string_view name;  // what its class names begin with
  std::int64_t vocabulary;
  std::int64_t intermediate;
  std::optional<std::int64_t> kv_heads;   // of a config without the key; nothing: as many as heads
  std::optional<std::int64_t> head_size;  // likewise; nothing: hidden over heads
  std::int64_t max_positions;
  enum { kFromConfig, kNever, kQkv } attention_bias;
  bool mlp_bias_from_config;
  bool qk_norm;
  enum { kNoWindow, kAllLayers, kByLayer } window;
  std::string_view answering_prefix;  // the bare model's name in the question answering class
};

constexpr Variant kLlamaVariant = {
    .name = "Llama",
    .vocabulary = 32000,
    .intermediate = 11008,
    .kv_heads = std::nullopt,
    .head_size = std::nullopt,
    .max_positions = 2048,
    .attention_bias = Variant::kFromConfig,
    .mlp_bias_from_config = true,
    .qk_norm = false,
    .window = Variant::kNoWindow,
    .answering_prefix = "transformer",
};
constexpr Variant kMistralVariant = {
    .name = "Mistral",
    .vocabulary = 32000,
    .intermediate = 14336,
    .kv_heads = 8,
    .head_size = std::nullopt,
    .max_positions = 131072,
    .attention_bias = Variant::kNever,
    .mlp_bias_from_config = false,
    .qk_norm = false,
    .window = Variant::kAllLayers,
    .answering_prefix = "model",
};
constexpr Variant kQwen2Variant = {
    .name = "Qwen2",
    .vocabulary = 151936,
    .intermediate = 22016,
    .kv_heads = 32,
    .head_size = std::nullopt,
    .max_positions = 32768,
    .attention_bias = Variant::kQkv,
    .mlp_bias_from_config = false,
    .qk_norm = false,
    .window = Variant::kByLayer,
    .answering_prefix = "transformer",
};
constexpr Variant kQwen3Variant = {
    .name = "Qwen3",
    .vocabulary = 151936,
    .intermediate = 22016,
    .kv_heads = 32,
    .head_size = 128,
    .max_positions = 32768,
    .attention_bias = Variant::kFromConfig,
    .mlp_bias_from_config = false,
    .qk_norm = true,
    .window = Variant::kByLayer,
    .answering_prefix = "transformer",
};

// The value under `key`, where null stands for `none` and a missing key for the class's default.
std::int64_t nullable(const ConfigReader& config, std::string_view key,
                      std::optional<std::int64_t> missing, std::int64_t none) {
  if (config.find({key}) == nullptr) return missing.value_or(none);
  return config.optional_size({key}).value_or(none);
}

void read_window(const ConfigReader& config, const Variant& variant, Dimensions* d) {
  if (variant.window == Variant::kNoWindow) return;
  const bool used =
      variant.window == Variant::kAllLayers || config.flag("use_sliding_window", false);
  const std::int64_t window = used ? nullable(config, "sliding_window", 4096, 0) : 0;
  if (window == 0) return;
  std::int64_t windowed = d->layers;
  if (variant.window == Variant::kByLayer) {
    if (config.has("layer_types")) {
      const Json* types = config.find({"layer_types"});
      if (!types->is_array() || types->size() != static_cast<std::size_t>(d->layers)) {
        config.fail("layer_types", fmt::format("is not a list of {} layers", d->layers));
      }
      windowed = 0;
      for (const Json& type : *types) windowed += type == "sliding_attention" ? 1 : 0;
    } else {
      const std::int64_t full = config.size_or_zero({"max_window_layers"}, 28);
      windowed = std::max<std::int64_t>(0, d->layers - full);
    }
  }
  d->windowed_layers = windowed;
  d->sliding_window = windowed > 0 ? window : 0;
}

Dimensions read_dimensions(const ConfigReader& config, const Variant& variant) {
  Dimensions d;
  d.layers = config.layers({"num_hidden_layers"}, 32);
  d.hidden = config.size({"hidden_size"}, 4096);
  d.heads = config.size({"num_attention_heads"}, 32);
  d.kv_heads = nullable(config, "num_key_value_heads", variant.kv_heads, d.heads);
  if (d.hidden < d.heads) config.fail("num_attention_heads", "is more than \"hidden_size\"");
  d.head_size = nullable(config, "head_dim", variant.head_size, d.hidden / d.heads);
  d.intermediate = config.size({"intermediate_size"}, variant.intermediate);
  d.gated_mlp = true;
  d.vocabulary = config.size({"vocab_size"}, variant.vocabulary);
  d.max_positions = config.size({"max_position_embeddings"}, variant.max_positions);
  d.causal = true;
  read_window(config, variant, &d);
  return d;
}

ModuleSpec attention(const ConfigReader& config, const Variant& v, const Dimensions& d) {
  const bool all = v.attention_bias == Variant::kFromConfig && config.flag("attention_bias", false);
  const Bias qkv = bias_if(all || v.attention_bias == Variant::kQkv);
  ModuleSpec result = module("self_attn", fmt::format("{}Attention", v.name),
                             linear("q_proj", d.hidden, d.heads * d.head_size, qkv),
                             linear("k_proj", d.hidden, d.kv_heads * d.head_size, qkv),
                             linear("v_proj", d.hidden, d.kv_heads * d.head_size, qkv),
                             linear("o_proj", d.heads * d.head_size, d.hidden, bias_if(all)));
  if (v.qk_norm) {
    const std::string norm = fmt::format("{}RMSNorm", v.name);
    result.children.push_back(rms_norm("q_norm", norm, d.head_size));
    result.children.push_back(rms_norm("k_norm", norm, d.head_size));
  }
  return result;
}

ModuleSpec decoder_layer(const ConfigReader& config, const Variant& v, const Dimensions& d) {
  const Bias bias = bias_if(v.mlp_bias_from_config && config.flag("mlp_bias", false));
  const std::string norm = fmt::format("{}RMSNorm", v.name);
  return module("", fmt::format("{}DecoderLayer", v.name), attention(config, v, d),
                module("mlp", fmt::format("{}MLP", v.name),
                       linear("gate_proj", d.hidden, d.intermediate, bias),
                       linear("up_proj", d.hidden, d.intermediate, bias),
                       linear("down_proj", d.intermediate, d.hidden, bias),
                       activation("act_fn", config.text("hidden_act", "silu"))),
                rms_norm("input_layernorm", norm, d.hidden),
                rms_norm("post_attention_layernorm", norm, d.hidden));
}

ModuleSpec bare_model(const ConfigReader& config, const Variant& v, const Dimensions& d) {
  return module("model", fmt::format("{}Model", v.name),
                embedding("embed_tokens", d.vocabulary, d.hidden),
                repeated("layers", d.layers, decoder_layer(config, v, d)),
                rms_norm("norm", fmt::format("{}RMSNorm", v.name), d.hidden),
                rotary_embedding(config, fmt::format("{}RotaryEmbedding", v.name), d.head_size));
}

Description describe_variant(const ConfigReader& config, const Variant& v,
                             std::string_view class_name) {
  Description result;
  result.dimensions = read_dimensions(config, v);
  result.no_split = {fmt::format("{}DecoderLayer", v.name)};
  const Dimensions& d = *result.dimensions;
  const std::string_view head = class_name.substr(v.name.size());
  ModuleSpec model = bare_model(config, v, d);
  if (head == "Model") {
    result.root = std::move(model);
  } else if (head == "ForCausalLM") {
    result.root = module("", class_name, std::move(model),
                         linear("lm_head", d.hidden, d.vocabulary, Bias::kNone));
    if (config.flag("tie_word_embeddings", false)) {
      result.tied = {{"model.embed_tokens.weight", "lm_head.weight"}};
    }
  } else {
    result.dimensions->causal = false;
    if (head == "ForQuestionAnswering") {
      model.name = v.answering_prefix;
      result.root = module("", class_name, std::move(model), linear("qa_outputs", d.hidden, 2));
    } else if (head == "ForSequenceClassification") {
      result.root = module("", class_name, std::move(model),
                           linear("score", d.hidden, config.labels(), Bias::kNone));
    } else {
      const Bias bias = bias_if(config.flag("token_classification_bias", true));
      result.root = module("", class_name, std::move(model), dropout("dropout"),
                           linear("score", d.hidden, config.labels(), bias));
    }
  }
  return result;
}

template <const Variant& variant>
Description describe_as(const ConfigReader& config, std::string_view class_name) {
  return describe_variant(config, variant, class_name);
}

using Classes = std::array<std::string_view, 5>;
constexpr Classes kLlamaClasses = {"LlamaModel", "LlamaForCausalLM",
                                   "LlamaForSequenceClassification", "LlamaForTokenClassification",
                                   "LlamaForQuestionAnswering"};
constexpr Classes kMistralClasses = {
    "MistralModel", "MistralForCausalLM", "MistralForSequenceClassification",
    "MistralForTokenClassification", "MistralForQuestionAnswering"};
constexpr Classes kQwen2Classes = {"Qwen2Model", "Qwen2ForCausalLM",
                                   "Qwen2ForSequenceClassification", "Qwen2ForTokenClassification",
                                   "Qwen2ForQuestionAnswering"};
constexpr Classes kQwen3Classes = {"Qwen3Model", "Qwen3ForCausalLM",
                                   "Qwen3ForSequenceClassification", "Qwen3ForTokenClassification",
                                   "Qwen3ForQuestionAnswering"};

// Heads of queries go with their heads of keys and values.
constexpr std::array<CutRule, 7> kCuts = {{
    {"self_attn.q_proj", CutSide::kOutputs},
    {"self_attn.k_proj", CutSide::kOutputs},
    {"self_attn.v_proj", CutSide::kOutputs},
    {"self_attn.o_proj", CutSide::kInputs},
    {"mlp.gate_proj", CutSide::kOutputs},
    {"mlp.up_proj", CutSide::kOutputs},
    {"mlp.down_proj", CutSide::kInputs},
}};

}  // namespace

extern const Family kLlama = {"llama",         kLlamaClasses, "model", describe_as<kLlamaVariant>,
                              Ties::kInConfig, kCuts};
extern const Family kMistral = {
    "mistral", kMistralClasses, "model", describe_as<kMistralVariant>, Ties::kInConfig, kCuts};
extern const Family kQwen2 = {"qwen2",         kQwen2Classes, "model", describe_as<kQwen2Variant>,
                              Ties::kInConfig, kCuts};
extern const Family kQwen3 = {"qwen3",         kQwen3Classes, "model", describe_as<kQwen3Variant>,
                              Ties::kInConfig, kCuts};

}  // namespace haul::core
