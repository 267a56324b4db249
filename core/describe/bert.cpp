#include <array>

#include "core/describe/family.h"
#include "core/describe/modules.h"

namespace haul::core {
namespace {

enum class Pooler { kNone, kPresent };

Dimensions read_dimensions(const ConfigReader& config) {
  Dimensions d;
  d.layers = config.layers({"num_hidden_layers"}, 12);
  d.hidden = config.size({"hidden_size"}, 768);
  d.heads = config.size({"num_attention_heads"}, 12);
  if (d.hidden % d.heads != 0) {
    config.fail("hidden_size", "is not a multiple of \"num_attention_heads\"");
  }
  d.kv_heads = d.heads;
  d.head_size = d.hidden / d.heads;
  d.intermediate = config.size({"intermediate_size"}, 3072);
  d.vocabulary = config.size({"vocab_size"}, 30522);
  d.max_positions = config.size({"max_position_embeddings"}, 512);
  d.causal = config.flag("is_decoder", false);
  return d;
}

ModuleSpec embeddings(const ConfigReader& config, const Dimensions& d) {
  ModuleSpec result =
      module("embeddings", "BertEmbeddings", embedding("word_embeddings", d.vocabulary, d.hidden),
             embedding("position_embeddings", d.max_positions, d.hidden),
             embedding("token_type_embeddings", config.size({"type_vocab_size"}, 2), d.hidden),
             layer_norm("LayerNorm", d.hidden), dropout("dropout"));
  add_buffer(&result, "position_ids", Dtype::kI64, {1, d.max_positions}, false);
  add_buffer(&result, "token_type_ids", Dtype::kI64, {1, d.max_positions}, false);
  return result;
}

// Projection, norm and dropout after attention and after the MLP.
ModuleSpec output(std::string_view class_name, std::int64_t in, std::int64_t out) {
  return module("output", class_name, linear("dense", in, out), layer_norm("LayerNorm", out),
                dropout("dropout"));
}

ModuleSpec attention(std::string_view name, std::string_view inner_class, const Dimensions& d) {
  return module(name, "BertAttention",
                module("self", inner_class, linear("query", d.hidden, d.hidden),
                       linear("key", d.hidden, d.hidden), linear("value", d.hidden, d.hidden),
                       dropout("dropout")),
                output("BertSelfOutput", d.hidden, d.hidden));
}

ModuleSpec layer(const ConfigReader& config, const Dimensions& d) {
  ModuleSpec result = module("", "BertLayer", attention("attention", "BertSelfAttention", d));
  if (config.flag("add_cross_attention", false)) {
    if (!d.causal) config.fail("add_cross_attention", "needs \"is_decoder\": true");
    result.children.push_back(attention("crossattention", "BertCrossAttention", d));
  }
  result.children.push_back(
      module("intermediate", "BertIntermediate", linear("dense", d.hidden, d.intermediate),
             activation("intermediate_act_fn", config.text("hidden_act", "gelu"))));
  result.children.push_back(output("BertOutput", d.intermediate, d.hidden));
  return result;
}

ModuleSpec bare_model(const ConfigReader& config, const Dimensions& d, Pooler pooler) {
  ModuleSpec result =
      module("bert", "BertModel", embeddings(config, d),
             module("encoder", "BertEncoder", repeated("layer", d.layers, layer(config, d))));
  if (pooler == Pooler::kPresent) {
    result.children.push_back(module("pooler", "BertPooler", linear("dense", d.hidden, d.hidden),
                                     module("activation", "Tanh")));
  }
  return result;
}

ModuleSpec word_prediction(const ConfigReader& config, const Dimensions& d) {
  ModuleSpec result =
      module("predictions", "BertLMPredictionHead",
             module("transform", "BertPredictionHeadTransform", linear("dense", d.hidden, d.hidden),
                    activation("transform_act_fn", config.text("hidden_act", "gelu")),
                    layer_norm("LayerNorm", d.hidden)),
             linear("decoder", d.hidden, d.vocabulary));
  add_parameter(&result, "bias", {d.vocabulary});
  return result;
}

void tie_word_prediction(const ConfigReader& config, Description* description) {
  if (!config.flag("tie_word_embeddings", true)) return;
  description->tied = {{"bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"},
                       {"cls.predictions.bias", "cls.predictions.decoder.bias"}};
}

Description describe(const ConfigReader& config, std::string_view class_name) {
  Description result;
  result.dimensions = read_dimensions(config);
  result.no_split = {"BertEmbeddings", "BertLayer"};
  const Dimensions& d = *result.dimensions;
  const auto with_head = [&](Pooler pooler, auto... children) {
    result.root = module("", class_name, bare_model(config, d, pooler), std::move(children)...);
  };
  if (class_name == "BertModel") {
    result.root = bare_model(config, d, Pooler::kPresent);
  } else if (class_name == "BertForMaskedLM" || class_name == "BertLMHeadModel") {
    with_head(Pooler::kNone, module("cls", "BertOnlyMLMHead", word_prediction(config, d)));
    tie_word_prediction(config, &result);
  } else if (class_name == "BertForPreTraining") {
    with_head(Pooler::kPresent, module("cls", "BertPreTrainingHeads", word_prediction(config, d),
                                       linear("seq_relationship", d.hidden, 2)));
    tie_word_prediction(config, &result);
  } else if (class_name == "BertForNextSentencePrediction") {
    with_head(Pooler::kPresent,
              module("cls", "BertOnlyNSPHead", linear("seq_relationship", d.hidden, 2)));
  } else if (class_name == "BertForQuestionAnswering") {
    with_head(Pooler::kNone, linear("qa_outputs", d.hidden, config.labels()));
  } else {
    const bool choice = class_name == "BertForMultipleChoice";
    const bool tokens = class_name == "BertForTokenClassification";
    with_head(tokens ? Pooler::kNone : Pooler::kPresent, dropout("dropout"),
              linear("classifier", d.hidden, choice ? 1 : config.labels()));
  }
  return result;
}

constexpr std::array<std::string_view, 9> kClasses = {
    "BertModel",
    "BertForMaskedLM",
    "BertLMHeadModel",
    "BertForPreTraining",
    "BertForNextSentencePrediction",
    "BertForSequenceClassification",
    "BertForMultipleChoice",
    "BertForTokenClassification",
    "BertForQuestionAnswering",
};

constexpr std::array<CutRule, 5> kCuts = {{
    {"attention.self.query", CutSide::kOutputs},
    {"attention.self.key", CutSide::kOutputs},
    {"attention.self.value", CutSide::kOutputs},
    {"intermediate.dense", CutSide::kOutputs},
    {"output.dense", CutSide::kInputs},  // of attention, and of the MLP
}};

}  // namespace

extern const Family kBert = {"bert", kClasses, "bert", describe, Ties::kInConfig, kCuts};

}  // namespace haul::core
