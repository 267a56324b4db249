#include <array>

#include "core/describe/family.h"
#include "core/describe/modules.h"
#include "core/describe/rotary.h"

namespace haul::core {
namespace {

ModuleSpec rms(std::string_view name, std::int64_t width) {
  return rms_norm(name, "IdeficsRMSNorm", width);
}

ModuleSpec vision_layer(const ConfigReader& vision, std::int64_t width) {
  const std::int64_t inner = vision.size({"intermediate_size"}, 5120);
  return module("", "IdeficsVisionEncoderLayer",
                module("self_attn", "IdeficsVisionAttention", linear("k_proj", width, width),
                       linear("v_proj", width, width), linear("q_proj", width, width),
                       linear("out_proj", width, width)),
                layer_norm("layer_norm1", width),
                module("mlp", "IdeficsVisionMLP",
                       activation("activation_fn", vision.text("hidden_act", "gelu")),
                       linear("fc1", width, inner), linear("fc2", inner, width)),
                layer_norm("layer_norm2", width));
}

ModuleSpec vision_model(const ConfigReader& vision, std::int64_t width) {
  const std::int64_t patch = vision.size({"patch_size"}, 14);
  const std::int64_t patches_a_side = vision.size({"image_size"}, 224) / patch;
  const std::int64_t positions = patches_a_side * patches_a_side + 1;
  ModuleSpec embeddings =
      module("embeddings", "IdeficsVisionEmbeddings",
             conv2d("patch_embedding", vision.size({"num_channels"}, 3), width, patch),
             embedding("position_embedding", positions, width));
  add_parameter(&embeddings, "class_embedding", {width});
  add_buffer(&embeddings, "position_ids", Dtype::kI64, {1, positions}, false);
  return module("vision_model", "IdeficsVisionTransformer", std::move(embeddings),
                layer_norm("pre_layrnorm", width),
                module("encoder", "IdeficsVisionEncoder",
                       repeated("layers", vision.layers({"num_hidden_layers"}, 32),
                                vision_layer(vision, width))),
                layer_norm("post_layernorm", width));
}

ModuleSpec perceiver_attention(const ConfigReader& perceiver, std::int64_t width) {
  const std::int64_t head_size = perceiver.size({"resampler_head_dim"}, 96);
  const std::int64_t inner = perceiver.size({"resampler_n_heads"}, 16) * head_size;
  ModuleSpec result =
      module("0", "IdeficsPerceiverAttention", layer_norm("context_layer_norm", width),
             layer_norm("latents_layer_norm", width));
  if (perceiver.flag("qk_layer_norms_perceiver", false)) {
    result.children.push_back(layer_norm("q_layer_norm", head_size));
    result.children.push_back(layer_norm("k_layer_norm", head_size));
  }
  for (const std::string_view name : {"q_proj", "k_proj", "v_proj"}) {
    result.children.push_back(linear(name, width, inner, Bias::kNone));
  }
  result.children.push_back(linear("output_proj", inner, width, Bias::kNone));
  return result;
}

ModuleSpec resampler(const ConfigReader& perceiver, std::int64_t width) {
  const ModuleSpec block =
      module("", "ModuleList", perceiver_attention(perceiver, width),
             module("1", "IdeficsMLP", layer_norm("ln", width),
                    linear("fc", width, 4 * width, Bias::kNone), module("act", "ReLU"),
                    linear("c_proj", 4 * width, width, Bias::kNone)));
  ModuleSpec result = module("perceiver_resampler", "IdeficsPerceiverResampler",
                             repeated("blocks", perceiver.layers({"resampler_depth"}, 6), block),
                             layer_norm("layer_norm", width));
  add_parameter(&result, "latents", {perceiver.size({"resampler_n_latents"}, 64), width});
  return result;
}

ModuleSpec attention(std::string_view name, const ConfigReader& config, const Dimensions& d,
                     std::int64_t key_width) {
  return module(name, "IdeficsAttention", linear("q_proj", d.hidden, d.hidden, Bias::kNone),
                linear("k_proj", key_width, d.hidden, Bias::kNone),
                linear("v_proj", key_width, d.hidden, Bias::kNone),
                linear("o_proj", d.hidden, d.hidden, Bias::kNone),
                rotary_embedding(config, "IdeficsRotaryEmbedding",
                                 config.optional_size({"head_dim"}).value_or(d.head_size)));
}

ModuleSpec mlp(const ConfigReader& config, const Dimensions& d) {
  return module("mlp", "IdeficsMLP", linear("gate_proj", d.hidden, d.intermediate, Bias::kNone),
                linear("down_proj", d.intermediate, d.hidden, Bias::kNone),
                linear("up_proj", d.hidden, d.intermediate, Bias::kNone),
                activation("act_fn", config.text("hidden_act", "silu")));
}

ModuleSpec decoder_layer(const ConfigReader& config, const Dimensions& d) {
  return module("", "IdeficsDecoderLayer", attention("self_attn", config, d, d.hidden),
                mlp(config, d), rms("input_layernorm", d.hidden),
                rms("post_attention_layernorm", d.hidden));
}

ModuleSpec cross_layer(const ConfigReader& config, const Dimensions& d, std::int64_t image_width) {
  ModuleSpec cross = attention("cross_attn", config, d, image_width);
  if (config.flag("qk_layer_norms", false)) {
    cross.children.push_back(rms("q_layer_norm", d.head_size));
    cross.children.push_back(rms("k_layer_norm", d.head_size));
  }
  ModuleSpec result =
      module("", "IdeficsGatedCrossAttentionLayer", std::move(cross), mlp(config, d),
             rms("input_layernorm", d.hidden), rms("post_attention_layernorm", d.hidden),
             module("act_cross_attn", "Tanh"), module("act_dense", "Tanh"));
  const std::string alpha = config.text("alpha_type", "float");
  if (alpha != "float" && alpha != "vector") {
    config.fail("alpha_type", "is neither \"float\" nor \"vector\"");
  }
  const Shape shape = alpha == "vector" ? Shape{1, 1, d.hidden} : Shape{1};
  add_parameter(&result, "alpha_cross_attn", shape);
  add_parameter(&result, "alpha_dense", shape);
  return result;
}

Dimensions read_dimensions(const ConfigReader& config) {
  Dimensions d;
  d.layers = config.layers({"num_hidden_layers"}, 32);
  d.hidden = config.size({"hidden_size"}, 4096);
  d.heads = config.size({"num_attention_heads"}, 32);
  if (d.hidden % d.heads != 0) {
    config.fail("hidden_size", "is not a multiple of \"num_attention_heads\"");
  }
  d.kv_heads = d.heads;
  d.head_size = d.hidden / d.heads;
  d.intermediate = config.size({"intermediate_size"}, 11008);
  d.gated_mlp = true;
  d.vocabulary = config.size({"vocab_size"}, 32000);
  d.max_positions = config.size({"max_position_embeddings"}, 2048);
  d.causal = true;
  return d;
}

ModuleSpec bare_model(const ConfigReader& config, const Dimensions& d, std::int64_t additional) {
  const ConfigReader vision = config.section("vision_config");
  const std::int64_t width = vision.size({"hidden_size", "embed_dim"}, 768);
  ModuleSpec tokens = embedding("embed_tokens", d.vocabulary, d.hidden);
  tokens.class_name = "IdeficsDecoupledEmbedding";
  if (additional > 0) {
    tokens.children.push_back(embedding("additional_embedding", additional, d.hidden));
  }
  ModuleSpec result =
      module("model", "IdeficsModel", std::move(tokens), vision_model(vision, width));
  if (config.flag("use_resampler", false)) {
    result.children.push_back(resampler(config.section("perceiver_config"), width));
  }
  const std::int64_t interval = config.size({"cross_layer_interval"}, 1);
  result.children.push_back(repeated("layers", d.layers, decoder_layer(config, d)));
  result.children.push_back(
      repeated("gated_cross_attn_layers", d.layers / interval, cross_layer(config, d, width)));
  result.children.push_back(rms("norm", d.hidden));
  return result;
}

Description describe(const ConfigReader& config, std::string_view class_name) {
  Description result;
  result.dimensions = read_dimensions(config);
  result.no_split = {"IdeficsDecoderLayer", "IdeficsGatedCrossAttentionLayer",
                     "IdeficsVisionEncoderLayer"};
  const Dimensions& d = *result.dimensions;
  const std::int64_t additional = config.size_or_zero({"additional_vocab_size"}, 0);
  ModuleSpec model = bare_model(config, d, additional);
  if (class_name == "IdeficsModel") {
    result.root = std::move(model);
    return result;
  }
  ModuleSpec head = linear("lm_head", d.hidden, d.vocabulary, Bias::kNone);
  head.class_name = "IdeficsDecoupledLinear";
  if (additional > 0) {
    head.children.push_back(linear("additional_fc", d.hidden, additional, Bias::kNone));
  }
  result.root = module("", class_name, std::move(model), std::move(head));
  if (config.flag("tie_word_embeddings", false)) {
    result.tied = {{"model.embed_tokens.weight", "lm_head.weight"}};
    if (additional > 0) {
      result.tied.push_back(
          {"model.embed_tokens.additional_embedding.weight", "lm_head.additional_fc.weight"});
    }
  }
  return result;
}

constexpr std::array<std::string_view, 2> kClasses = {"IdeficsModel", "IdeficsForVisionText2Text"};

}  // namespace

extern const Family kIdefics = {"idefics", kClasses, "model", describe};

}  // namespace haul::core
