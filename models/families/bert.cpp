#include <array>

#include <ATen/ops/arange.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/nn/modules/container/modulelist.h>

#include "haul/error.h"
#include "models/blocks/activation.h"
#include "models/blocks/attention.h"
#include "models/blocks/stock.h"
#include "models/families/family.h"
#include "models/families/tokens.h"

namespace haul::models {
namespace {

class BertEmbeddingsImpl : public torch::nn::Module {
 public:
  BertEmbeddingsImpl(const ModuleSpec& spec, double epsilon) {
    words_ = register_module("word_embeddings", embedding(spec, "word_embeddings"));
    places_ = register_module("position_embeddings", embedding(spec, "position_embeddings"));
    types_ = register_module("token_type_embeddings", embedding(spec, "token_type_embeddings"));
    norm_ = register_module("LayerNorm", layer_norm(spec, "LayerNorm", epsilon));
    const std::int64_t count = places_->weight.size(0);
    register_buffer("position_ids", at::arange(count).unsqueeze(0));
    register_buffer("token_type_ids", at::zeros({1, count}, at::kLong));
  }

  at::Tensor forward(const Inputs& inputs) {
    const at::Tensor types = inputs.types.defined() ? inputs.types : at::zeros_like(inputs.ids);
    // Positions count padding too.
    const at::Tensor places = at::arange(inputs.ids.size(1), inputs.ids.options()).unsqueeze(0);
    return norm_(words_(inputs.ids) + types_(types) + places_(places));
  }

  const at::Tensor& words() const { return words_->weight; }
  std::int64_t positions() const { return places_->weight.size(0); }

 private:
  SharingEmbedding words_{nullptr}, places_{nullptr}, types_{nullptr};
  QuickLayerNorm norm_{nullptr};
};
TORCH_MODULE(BertEmbeddings);

class BertSelfAttentionImpl : public torch::nn::Module {
 public:
  BertSelfAttentionImpl(const ModuleSpec& spec, std::int64_t head_size) : head_size_(head_size) {
    query_ = register_module("query", linear(spec, "query"));
    key_ = register_module("key", linear(spec, "key"));
    value_ = register_module("value", linear(spec, "value"));
  }

  at::Tensor forward(const at::Tensor& x, const AttentionMask& mask) {
    const auto heads = [&](SharingLinear& projection) {
      return split_heads(projection(x), head_size_);
    };
    return attend(heads(query_), {heads(key_), heads(value_)}, mask);
  }

 private:
  std::int64_t head_size_;
  SharingLinear query_{nullptr}, key_{nullptr}, value_{nullptr};
};
TORCH_MODULE(BertSelfAttention);

// Projection and norm after attention and after the MLP.
class BertOutputImpl : public torch::nn::Module {
 public:
  BertOutputImpl(const ModuleSpec& spec, double epsilon) {
    dense_ = register_module("dense", linear(spec, "dense"));
    norm_ = register_module("LayerNorm", layer_norm(spec, "LayerNorm", epsilon));
  }

  at::Tensor forward(const at::Tensor& x, const at::Tensor& before) {
    return norm_(dense_(x) + before);
  }

 private:
  SharingLinear dense_{nullptr};
  QuickLayerNorm norm_{nullptr};
};
TORCH_MODULE(BertOutput);

class BertAttentionImpl : public torch::nn::Module {
 public:
  BertAttentionImpl(const ModuleSpec& spec, std::int64_t head_size, double epsilon) {
    self_ = register_module("self", BertSelfAttention(child(spec, "self"), head_size));
    output_ = register_module("output", BertOutput(child(spec, "output"), epsilon));
  }

  at::Tensor forward(const at::Tensor& x, const AttentionMask& mask) {
    return output_(self_(x, mask), x);
  }

 private:
  BertSelfAttention self_{nullptr};
  BertOutput output_{nullptr};
};
TORCH_MODULE(BertAttention);

class BertIntermediateImpl : public torch::nn::Module {
 public:
  BertIntermediateImpl(const ModuleSpec& spec, Activation act) : act_(act) {
    dense_ = register_module("dense", linear(spec, "dense"));
  }

  at::Tensor forward(const at::Tensor& x) { return act_(dense_(x)); }

 private:
  Activation act_;
  SharingLinear dense_{nullptr};
};
TORCH_MODULE(BertIntermediate);

struct Settings {
  std::int64_t head_size;
  double epsilon;
  Activation act;
};

Settings read_settings(const core::ConfigReader& config, const Dimensions& d) {
  return {d.head_size, config.number("layer_norm_eps", 1e-12),
          activation(config.text("hidden_act", "gelu"))};
}

class BertLayerImpl : public torch::nn::Module {
 public:
  BertLayerImpl(const ModuleSpec& spec, const Settings& settings) {
    attention_ = register_module(
        "attention", BertAttention(child(spec, "attention"), settings.head_size, settings.epsilon));
    intermediate_ = register_module("intermediate",
                                    BertIntermediate(child(spec, "intermediate"), settings.act));
    output_ = register_module("output", BertOutput(child(spec, "output"), settings.epsilon));
  }

  at::Tensor forward(const at::Tensor& x, const AttentionMask& mask) {
    const at::Tensor attended = attention_(x, mask);
    return output_(intermediate_(attended), attended);
  }

 private:
  BertAttention attention_{nullptr};
  BertIntermediate intermediate_{nullptr};
  BertOutput output_{nullptr};
};
TORCH_MODULE(BertLayer);

class BertEncoderImpl : public torch::nn::Module {
 public:
  BertEncoderImpl(const ModuleSpec& spec, const Settings& settings) {
    layer_ = register_module("layer", torch::nn::ModuleList());
    for (const ModuleSpec& layer : child(spec, "layer").children) {
      layer_->push_back(BertLayer(layer, settings));
    }
  }

  at::Tensor forward(at::Tensor x, const AttentionMask& mask, const Layers& part) {
    for (std::size_t i = part.begin; i < part.end; ++i) {
      x = layer_[i]->as<BertLayerImpl>()->forward(x, mask);
    }
    return x;
  }
  std::size_t size() const { return layer_->size(); }

 private:
  torch::nn::ModuleList layer_{nullptr};
};
TORCH_MODULE(BertEncoder);

class BertPoolerImpl : public torch::nn::Module {
 public:
  explicit BertPoolerImpl(const ModuleSpec& spec) {
    dense_ = register_module("dense", linear(spec, "dense"));
  }

  at::Tensor forward(const at::Tensor& x) { return at::tanh(dense_(x.select(1, 0))); }

 private:
  SharingLinear dense_{nullptr};
};
TORCH_MODULE(BertPooler);

class BertModelImpl : public Model {
 public:
  BertModelImpl(const core::ConfigReader& config, const ModuleSpec& spec, const Dimensions& d) {
    if (config.flag("is_decoder", false)) {
      throw Error(ErrorKind::kUnsupported, "haul cannot run a BERT that is a decoder");
    }
    const Settings settings = read_settings(config, d);
    embeddings_ =
        register_module("embeddings", BertEmbeddings(child(spec, "embeddings"), settings.epsilon));
    encoder_ = register_module("encoder", BertEncoder(child(spec, "encoder"), settings));
    if (has_child(spec, "pooler")) {
      pooler_ = register_module("pooler", BertPooler(child(spec, "pooler")));
    }
  }

  at::Tensor forward(const Inputs& inputs) override {  // (B, T, C)
    return forward_part(inputs, {0, encoder_->size()}, {});
  }
  at::Tensor forward_part(const Inputs& inputs, const Layers& part, const at::Tensor& x) override {
    return encoder_(part.begin == 0 ? embeddings_(inputs) : x, full_mask(inputs.attended), part);
  }
  std::vector<std::string> layers() const override {
    return layer_names("encoder.layer", encoder_->size());
  }
  at::Tensor pooled(const at::Tensor& x) { return pooler_(x); }  // (B, T, C) to (B, C)
  std::int64_t most_positions() const override { return embeddings_->positions(); }
  const at::Tensor& words() const { return embeddings_->words(); }

 private:
  BertEmbeddings embeddings_{nullptr};
  BertEncoder encoder_{nullptr};
  BertPooler pooler_{nullptr};
};
TORCH_MODULE(BertModel);

// A BERT under a head.
class BertWithHead : public Model {
 public:
  at::Tensor forward(const Inputs& inputs) override { return head(inputs, hidden(inputs)); }
  at::Tensor hidden(const Inputs& inputs) override { return bert_->forward(inputs); }
  at::Tensor forward_part(const Inputs& inputs, const Layers& part, const at::Tensor& x) override {
    const at::Tensor hidden = bert_->forward_part(inputs, part, x);
    return part.end < bert_->layers().size() ? hidden : head(inputs, hidden);
  }
  std::vector<std::string> layers() const override {
    return layer_names("bert.encoder.layer", bert_->layers().size());
  }
  std::int64_t most_positions() const override { return bert_->most_positions(); }

 protected:
  virtual at::Tensor head(const Inputs& inputs, const at::Tensor& x) = 0;  // of x (B, T, C)

  BertModel bert_{nullptr};
};

// Scores of labels for the whole text.
class BertForSequenceClassification : public BertWithHead {
 public:
  BertForSequenceClassification(const core::ConfigReader& config, const Description& description) {
    bert_ = register_module(
        "bert", BertModel(config, child(description.root, "bert"), *description.dimensions));
    classifier_ = register_module("classifier", linear(description.root, "classifier"));
  }

 private:
  at::Tensor head(const Inputs& /*inputs*/, const at::Tensor& x) override {
    return classifier_(bert_->pooled(x));
  }

  SharingLinear classifier_{nullptr};
};

class BertTransformImpl : public torch::nn::Module {
 public:
  BertTransformImpl(const ModuleSpec& spec, const Settings& settings) : act_(settings.act) {
    dense_ = register_module("dense", linear(spec, "dense"));
    norm_ = register_module("LayerNorm", layer_norm(spec, "LayerNorm", settings.epsilon));
  }

  at::Tensor forward(const at::Tensor& x) { return norm_(act_(dense_(x))); }

 private:
  Activation act_;
  SharingLinear dense_{nullptr};
  QuickLayerNorm norm_{nullptr};
};
TORCH_MODULE(BertTransform);

class BertPredictionsImpl : public torch::nn::Module {
 public:
  BertPredictionsImpl(const ModuleSpec& spec, const Settings& settings) {
    transform_ = register_module("transform", BertTransform(child(spec, "transform"), settings));
    decoder = register_module("decoder", linear(spec, "decoder"));
    bias = register_parameter("bias", at::zeros({decoder->weight.size(0)}));
  }

  at::Tensor forward(const at::Tensor& x) { return decoder(transform_(x)); }

  SharingLinear decoder{nullptr};
  at::Tensor bias;  // the decoder's, where they are tied

 private:
  BertTransform transform_{nullptr};
};
TORCH_MODULE(BertPredictions);

class BertHeadsImpl : public torch::nn::Module {
 public:
  BertHeadsImpl(const ModuleSpec& spec, const Settings& settings) {
    predictions =
        register_module("predictions", BertPredictions(child(spec, "predictions"), settings));
  }

  BertPredictions predictions{nullptr};
};
TORCH_MODULE(BertHeads);

// Logits of words for every place.
class BertForMaskedLM : public BertWithHead {
 public:
  BertForMaskedLM(const core::ConfigReader& config, const Description& description) {
    const Dimensions& d = *description.dimensions;
    bert_ = register_module("bert", BertModel(config, child(description.root, "bert"), d));
    cls_ =
        register_module("cls", BertHeads(child(description.root, "cls"), read_settings(config, d)));
    if (description.tied.empty()) return;
    cls_->predictions->decoder->share(bert_->words());
    cls_->predictions->decoder->share_bias(cls_->predictions->bias);
  }

 private:
  at::Tensor head(const Inputs& inputs, const at::Tensor& x) override {
    return cls_->predictions(last_tokens(x, inputs.last));
  }

  BertHeads cls_{nullptr};
};

std::shared_ptr<Model> make(const core::ConfigReader& config, const Description& description) {
  if (description.architecture == "BertForMaskedLM") {
    return std::make_shared<BertForMaskedLM>(config, description);
  }
  if (description.architecture == "BertForSequenceClassification") {
    return std::make_shared<BertForSequenceClassification>(config, description);
  }
  return BertModel(config, description.root, *description.dimensions).ptr();
}

constexpr std::array<std::string_view, 3> kArchitectures = {
    "BertForMaskedLM", "BertForSequenceClassification", "BertModel"};

}  // namespace

extern const Family kBertFamily = {kArchitectures, make};

}  // namespace haul::models
