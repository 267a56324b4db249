#include <array>

#include "core/describe/family.h"
#include "core/describe/modules.h"

namespace haul::core {
namespace {

Dimensions read_dimensions(const ConfigReader& config) {
  Dimensions d;
  d.layers = config.layers({"num_hidden_layers", "n_layer"}, 12);
  d.hidden = config.size({"hidden_size", "n_embd"}, 768);
  d.heads = config.size({"num_attention_heads", "n_head"}, 12);
  if (d.hidden % d.heads != 0) config.fail("n_embd", "is not a multiple of \"n_head\"");
  d.kv_heads = d.heads;
  d.fused_qkv = true;
  d.head_size = d.hidden / d.heads;
  d.intermediate = config.optional_size({"n_inner"}).value_or(4 * d.hidden);
  d.vocabulary = config.size({"vocab_size"}, 50257);
  d.max_positions = config.size({"max_position_embeddings", "n_positions"}, 1024);
  d.causal = true;
  return d;
}

// A linear layer whose weight lies the other way round: (in, out).
ModuleSpec conv1d(std::string_view name, std::int64_t in, std::int64_t out) {
  ModuleSpec result = module(name, "Conv1D");
  add_parameter(&result, "weight", {in, out});
  add_parameter(&result, "bias", {out});
  return result;
}

ModuleSpec self_attention(const Dimensions& d) {
  return module("attn", "GPT2Attention", conv1d("c_attn", d.hidden, 3 * d.hidden),
                conv1d("c_proj", d.hidden, d.hidden), dropout("attn_dropout"),
                dropout("resid_dropout"));
}

ModuleSpec cross_attention(const Dimensions& d) {
  return module("crossattention", "GPT2Attention", conv1d("c_attn", d.hidden, 2 * d.hidden),
                conv1d("q_attn", d.hidden, d.hidden), conv1d("c_proj", d.hidden, d.hidden),
                dropout("attn_dropout"), dropout("resid_dropout"));
}

ModuleSpec block(const ConfigReader& config, const Dimensions& d) {
  ModuleSpec result = module("", "GPT2Block", layer_norm("ln_1", d.hidden), self_attention(d),
                             layer_norm("ln_2", d.hidden));
  if (config.flag("add_cross_attention", false)) {
    result.children.push_back(cross_attention(d));
    result.children.push_back(layer_norm("ln_cross_attn", d.hidden));
  }
  result.children.push_back(module(
      "mlp", "GPT2MLP", conv1d("c_fc", d.hidden, d.intermediate),
      conv1d("c_proj", d.intermediate, d.hidden),
      activation("act", config.text("activation_function", "gelu_new")), dropout("dropout")));
  return result;
}

ModuleSpec bare_model(const ConfigReader& config, const Dimensions& d) {
  return module("transformer", "GPT2Model", embedding("wte", d.vocabulary, d.hidden),
                embedding("wpe", d.max_positions, d.hidden), dropout("drop"),
                repeated("h", d.layers, block(config, d)), layer_norm("ln_f", d.hidden));
}

ModuleSpec dropout_or_identity(std::string_view name, double share) {
  return module(name, share > 0.0 ? "Dropout" : "Identity");
}

// The multiple choice head of the double heads model: one score a choice, whatever the labels.
ModuleSpec summary(const ConfigReader& config, const Dimensions& d) {
  const bool to_labels = config.flag("summary_proj_to_labels", true);
  const bool active =
      config.has("summary_activation") && !config.text("summary_activation", "").empty();
  return module("multiple_choice_head", "GPT2SequenceSummary",
                config.flag("summary_use_proj", true)
                    ? linear("summary", d.hidden, to_labels ? 1 : d.hidden)
                    : module("summary", "Identity"),
                active ? activation("activation", config.text("summary_activation", ""))
                       : module("activation", "Identity"),
                dropout_or_identity("first_dropout", config.number("summary_first_dropout", 0.1)),
                dropout_or_identity("last_dropout", config.number("summary_last_dropout", 0.0)));
}

Description describe(const ConfigReader& config, std::string_view class_name) {
  Description result;
  result.dimensions = read_dimensions(config);
  result.no_split = {"GPT2Block"};
  const Dimensions d = *result.dimensions;
  if (class_name == "GPT2Model") {
    result.root = bare_model(config, d);
    return result;
  }
  result.root = module("", class_name, bare_model(config, d));
  std::vector<ModuleSpec>& children = result.root.children;
  if (class_name == "GPT2LMHeadModel" || class_name == "GPT2DoubleHeadsModel") {
    children.push_back(linear("lm_head", d.hidden, d.vocabulary, Bias::kNone));
    if (config.flag("tie_word_embeddings", true)) {
      result.tied = {{"transformer.wte.weight", "lm_head.weight"}};
    }
    if (class_name == "GPT2DoubleHeadsModel") children.push_back(summary(config, d));
    return result;
  }
  result.dimensions->causal = false;
  if (class_name == "GPT2ForSequenceClassification") {
    children.push_back(linear("score", d.hidden, config.labels(), Bias::kNone));
  } else if (class_name == "GPT2ForTokenClassification") {
    children.push_back(dropout("dropout"));
    children.push_back(linear("classifier", d.hidden, config.labels()));
  } else {
    children.push_back(linear("qa_outputs", d.hidden, 2));
  }
  return result;
}

constexpr std::array<std::string_view, 6> kClasses = {
    "GPT2Model",
    "GPT2LMHeadModel",
    "GPT2DoubleHeadsModel",
    "GPT2ForSequenceClassification",
    "GPT2ForTokenClassification",
    "GPT2ForQuestionAnswering",
};

constexpr std::array<CutRule, 4> kCuts = {{
    {"attn.c_attn", CutSide::kOutputs, 3},  // queries, keys and values
    {"attn.c_proj", CutSide::kInputs},
    {"mlp.c_fc", CutSide::kOutputs},
    {"mlp.c_proj", CutSide::kInputs},
}};

}  // namespace

extern const Family kGpt2 = {"gpt2", kClasses, "transformer", describe, Ties::kInConfig, kCuts};

}  // namespace haul::core
