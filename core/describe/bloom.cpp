#include <array>

#include "core/describe/family.h"
#include "core/describe/modules.h"

namespace haul::core {
namespace {

Dimensions read_dimensions(const ConfigReader& config) {
  Dimensions d;
  d.layers = config.layers({"num_hidden_layers", "n_layer"}, 2);
  d.hidden = config.optional_size({"n_embed"}).value_or(config.size({"hidden_size"}, 64));
  d.heads = config.size({"num_attention_heads", "n_head"}, 8);
  if (d.hidden % d.heads != 0) config.fail("hidden_size", "is not a multiple of \"n_head\"");
  d.kv_heads = d.heads;
  d.fused_qkv = true;
  d.head_size = d.hidden / d.heads;
  d.intermediate = 4 * d.hidden;
  d.vocabulary = config.size({"vocab_size"}, 250880);
  d.causal = true;
  d.score_bias = true;
  return d;
}

ModuleSpec block(const Dimensions& d) {
  return module(
      "", "BloomBlock", layer_norm("input_layernorm", d.hidden),
      module("self_attention", "BloomAttention", linear("query_key_value", d.hidden, 3 * d.hidden),
             linear("dense", d.hidden, d.hidden), dropout("attention_dropout")),
      layer_norm("post_attention_layernorm", d.hidden),
      module("mlp", "BloomMLP", linear("dense_h_to_4h", d.hidden, d.intermediate),
             module("gelu_impl", "BloomGelu"), linear("dense_4h_to_h", d.intermediate, d.hidden)));
}

ModuleSpec bare_model(const Dimensions& d) {
  return module("transformer", "BloomModel", embedding("word_embeddings", d.vocabulary, d.hidden),
                layer_norm("word_embeddings_layernorm", d.hidden),
                repeated("h", d.layers, block(d)), layer_norm("ln_f", d.hidden));
}

Description describe(const ConfigReader& config, std::string_view class_name) {
  Description result;
  result.dimensions = read_dimensions(config);
  result.no_split = {"BloomBlock"};
  const Dimensions d = *result.dimensions;
  if (class_name == "BloomModel") {
    result.root = bare_model(d);
    return result;
  }
  result.root = module("", class_name, bare_model(d));
  std::vector<ModuleSpec>& children = result.root.children;
  if (class_name == "BloomForCausalLM") {
    children.push_back(linear("lm_head", d.hidden, d.vocabulary, Bias::kNone));
    if (config.flag("tie_word_embeddings", true)) {
      result.tied = {{"transformer.word_embeddings.weight", "lm_head.weight"}};
    }
    return result;
  }
  result.dimensions->causal = false;
  if (class_name == "BloomForSequenceClassification") {
    children.push_back(linear("score", d.hidden, config.labels(), Bias::kNone));
  } else if (class_name == "BloomForTokenClassification") {
    children.push_back(dropout("dropout"));
    children.push_back(linear("classifier", d.hidden, config.labels()));
  } else {
    children.push_back(linear("qa_outputs", d.hidden, 2));
  }
  return result;
}

constexpr std::array<std::string_view, 5> kClasses = {
    "BloomModel", "BloomForCausalLM", "BloomForSequenceClassification",
    "BloomForTokenClassification", "BloomForQuestionAnswering"};

// Query, key and value of a head lie together.
constexpr std::array<CutRule, 4> kCuts = {{
    {"self_attention.query_key_value", CutSide::kOutputs},
    {"self_attention.dense", CutSide::kInputs},
    {"mlp.dense_h_to_4h", CutSide::kOutputs},
    {"mlp.dense_4h_to_h", CutSide::kInputs},
}};

}  // namespace

extern const Family kBloom = {"bloom", kClasses, "transformer", describe, Ties::kInConfig, kCuts};

}  // namespace haul::core
