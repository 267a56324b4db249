#include <array>

#include "core/describe/family.h"
#include "core/describe/modules.h"
#include "haul/error.h"

namespace haul::core {
namespace {

// T5ForConditionalGeneration in configs of the first checkpoints.
constexpr std::string_view kOldName = "T5WithLMHeadModel";

struct FeedForward {
  std::string activation;
  bool gated = false;
};

// "relu" or "gated-gelu"; the latter's gelu is the tanh one.
FeedForward read_feed_forward(const ConfigReader& config) {
  const std::string text = config.text("feed_forward_proj", "relu");
  const bool gated = text.starts_with("gated-");
  std::string function = gated ? text.substr(6) : text;
  if (function.find('-') != std::string::npos) {
    config.fail("feed_forward_proj", "is neither an activation nor gated-ACTIVATION");
  }
  if (text == "gated-gelu") function = "gelu_new";
  return {config.text("dense_act_fn", function), config.flag("is_gated_act", gated)};
}

struct Config {
  Dimensions d;
  FeedForward feed_forward;
  std::int64_t encoder_layers = 0;
  std::int64_t decoder_layers = 0;
  std::int64_t buckets = 0;
};

Config read_config(const ConfigReader& config) {
  Config c;
  c.encoder_layers = config.layers({"num_hidden_layers", "num_layers"}, 6);
  const bool given = config.has("num_decoder_layers");
  // As many as "num_layers", which the other name does not reach.
  c.decoder_layers = config.layers({given ? "num_decoder_layers" : "num_layers"}, 6);
  c.feed_forward = read_feed_forward(config);
  c.buckets = config.size({"relative_attention_num_buckets"}, 32);
  c.d.hidden = config.size({"hidden_size", "d_model"}, 512);
  c.d.heads = config.size({"num_attention_heads", "num_heads"}, 8);
  c.d.kv_heads = c.d.heads;
  c.d.head_size = config.size({"head_dim", "d_kv"}, 64);
  c.d.intermediate = config.size({"d_ff"}, 2048);
  c.d.gated_mlp = c.feed_forward.gated;
  c.d.score_bias = true;
  c.d.vocabulary = config.size({"vocab_size"}, 32128);
  return c;
}

ModuleSpec norm(std::string_view name, const Config& c) {
  return rms_norm(name, "T5LayerNorm", c.d.hidden);
}

ModuleSpec attention(std::string_view name, const Config& c, bool relative_bias) {
  const std::int64_t inner = c.d.heads * c.d.head_size;
  ModuleSpec result = module(name, "T5Attention", linear("q", c.d.hidden, inner, Bias::kNone),
                             linear("k", c.d.hidden, inner, Bias::kNone),
                             linear("v", c.d.hidden, inner, Bias::kNone),
                             linear("o", inner, c.d.hidden, Bias::kNone));
  if (relative_bias) {
    result.children.push_back(embedding("relative_attention_bias", c.buckets, c.d.heads));
  }
  return result;
}

ModuleSpec feed_forward(const Config& c) {
  const std::int64_t inner = c.d.intermediate;
  ModuleSpec dense = module("DenseReluDense", "T5DenseActDense");
  if (c.feed_forward.gated) {
    dense.class_name = "T5DenseGatedActDense";
    dense.children.push_back(linear("wi_0", c.d.hidden, inner, Bias::kNone));
    dense.children.push_back(linear("wi_1", c.d.hidden, inner, Bias::kNone));
  } else {
    dense.children.push_back(linear("wi", c.d.hidden, inner, Bias::kNone));
  }
  dense.children.push_back(linear("wo", inner, c.d.hidden, Bias::kNone));
  dense.children.push_back(dropout("dropout"));
  dense.children.push_back(activation("act", c.feed_forward.activation));
  return module("", "T5LayerFF", std::move(dense), norm("layer_norm", c), dropout("dropout"));
}

enum class Stack { kEncoder, kDecoder };

ModuleSpec block(const Config& c, Stack stack, bool relative_bias) {
  ModuleSpec layers =
      module("layer", "ModuleList",
             module("", "T5LayerSelfAttention", attention("SelfAttention", c, relative_bias),
                    norm("layer_norm", c), dropout("dropout")));
  if (stack == Stack::kDecoder) {
    layers.children.push_back(module("", "T5LayerCrossAttention",
                                     attention("EncDecAttention", c, false), norm("layer_norm", c),
                                     dropout("dropout")));
  }
  layers.children.push_back(feed_forward(c));
  for (std::size_t i = 0; i < layers.children.size(); ++i) {
    layers.children[i].name = std::to_string(i);
  }
  return module("", "T5Block", std::move(layers));
}

ModuleSpec stack(std::string_view name, const Config& c, Stack kind, std::int64_t layers) {
  ModuleSpec blocks = repeated("block", layers, block(c, kind, false));
  // The first block's bias serves all of them.
  blocks.children.front() = block(c, kind, true);
  blocks.children.front().name = "0";
  return module(name, "T5Stack", embedding("embed_tokens", c.d.vocabulary, c.d.hidden),
                std::move(blocks), norm("final_layer_norm", c), dropout("dropout"));
}

ModuleSpec encoder_decoder(std::string_view name, std::string_view class_name, const Config& c) {
  return module(name, class_name, embedding("shared", c.d.vocabulary, c.d.hidden),
                stack("encoder", c, Stack::kEncoder, c.encoder_layers),
                stack("decoder", c, Stack::kDecoder, c.decoder_layers));
}

ModuleSpec encoder_only(std::string_view name, const Config& c, bool is_decoder) {
  return module(
      name, "T5EncoderModel", embedding("shared", c.d.vocabulary, c.d.hidden),
      stack("encoder", c, is_decoder ? Stack::kDecoder : Stack::kEncoder, c.encoder_layers));
}

Description describe(const ConfigReader& config, std::string_view class_name) {
  if (class_name == kOldName) class_name = "T5ForConditionalGeneration";
  Config c = read_config(config);
  Description result;
  result.no_split = {"T5Block"};
  const bool encoder_alone =
      class_name == "T5EncoderModel" || class_name == "T5ForTokenClassification";
  std::string prefix;
  if (class_name == "T5EncoderModel") {
    result.root = encoder_only("", c, config.flag("is_decoder", false));
  } else if (class_name == "T5ForTokenClassification") {
    prefix = "transformer.";
    result.root =
        module("", class_name, encoder_only("transformer", c, config.flag("is_decoder", false)),
               dropout("dropout"), linear("classifier", c.d.hidden, config.labels()));
  } else if (class_name == "T5ForSequenceClassification") {
    prefix = "transformer.";
    result.root = module("", class_name, encoder_decoder("transformer", "T5Model", c),
                         module("classification_head", "T5ClassificationHead",
                                linear("dense", c.d.hidden, c.d.hidden), dropout("dropout"),
                                linear("out_proj", c.d.hidden, config.labels())));
  } else {
    result.root = encoder_decoder("", class_name, c);
    if (class_name == "T5ForConditionalGeneration") {
      result.root.children.push_back(linear("lm_head", c.d.hidden, c.d.vocabulary, Bias::kNone));
    } else if (class_name == "T5ForQuestionAnswering") {
      result.root.children.push_back(linear("qa_outputs", c.d.hidden, config.labels()));
    }
  }
  // Tied whatever the config says, unless the checkpoint holds a table of its own.
  std::vector<std::string> tied = {prefix + "shared.weight",
                                   prefix + "encoder.embed_tokens.weight"};
  if (!encoder_alone) tied.push_back(prefix + "decoder.embed_tokens.weight");
  if (class_name == "T5ForConditionalGeneration") tied.push_back("lm_head.weight");
  result.tied = {std::move(tied)};

  c.d.layers = encoder_alone ? c.encoder_layers : c.decoder_layers;
  c.d.encoder_layers = encoder_alone ? 0 : c.encoder_layers;
  c.d.causal = class_name == "T5Model" || class_name == "T5ForConditionalGeneration";
  result.dimensions = c.d;
  return result;
}

constexpr std::array<std::string_view, 7> kClasses = {
    "T5Model",
    "T5ForConditionalGeneration",
    "T5EncoderModel",
    "T5ForSequenceClassification",
    "T5ForTokenClassification",
    "T5ForQuestionAnswering",
    kOldName,
};

}  // namespace

extern const Family kT5 = {"t5", kClasses, "transformer", describe, Ties::kInCheckpoint};

}  // namespace haul::core
