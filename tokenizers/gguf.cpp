// The engine of the tokenizer inside a GGUF file.

#include "tokenizers/gguf_tokenizer.h"
#include "tokenizers/sources.h"
#include "tokenizers/tokenizer_json.h"

namespace haul::tokenizers {
namespace {

// sentencepiece's own library rather than what tokenizer.json can say of it: its normalization sees
// characters where the other sees graphemes, and it adds scores in single precision.
void set_unigrams(const SentencePieceModel& model, std::string_view source, Pipeline& pipeline) {
  Pipeline exact = build_sentencepiece(model, source);
  pipeline.model = std::move(exact.model);
  pipeline.normalizer = std::move(exact.normalizer);
  pipeline.later_normalizer = std::move(exact.later_normalizer);
  pipeline.prepends = exact.prepends;
  pipeline.pre_tokenizer = std::move(exact.pre_tokenizer);
}

}  // namespace

Pipeline read_gguf(const core::GgufHeader& header, std::string_view source) {
  GgufTokenizer parts = parse_gguf_tokenizer(header, source);
  const std::string stages_text = parts.stages.dump();
  const core::BigJson stages(stages_text, source);
  const JsonValue root(stages.root(), std::string(source));
  const JsonValue model = root.at("model");
  Pipeline pipeline;
  read_stages(root, pipeline);
  if (parts.unigrams) {
    set_unigrams(*parts.unigrams, source, pipeline);
  } else if (model.at("type").string() == "BPE") {
    pipeline.model = make_bpe(std::move(parts.vocabulary), parts.merges, read_bpe_options(model));
  } else {
    pipeline.model = make_word_piece(std::move(parts.vocabulary), read_word_piece_options(model));
  }
  pipeline.added.add(parts.added, pipeline.model->vocabulary(), nullptr);

  const std::string config_text = parts.config.dump();
  const core::BigJson config(config_text, source);
  apply_tokenizer_config(JsonValue(config.root(), std::string(source)), true, pipeline);
  return pipeline;
}

}  // namespace haul::tokenizers
