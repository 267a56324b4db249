// The tokenizer inside a GGUF file: the vocabulary as arrays of metadata, and names for the rest.

#include <fmt/format.h>

#include "haul/error.h"
#include "tokenizers/sentencepiece.h"
#include "tokenizers/sources.h"
#include "tokenizers/tokenizer_json.h"
#include "tokenizers/utf8.h"

namespace haul::tokenizers {
namespace {

constexpr std::string_view kMark = "\xE2\x96\x81";

// The metadata under "tokenizer.".
class Metadata {
 public:
  Metadata(const core::GgufHeader& header, std::string_view source)
      : header_(header), source_(source) {}

  const core::GgufValue* find(std::string_view key) const {
    return header_.find(fmt::format("tokenizer.{}", key));
  }
  std::vector<std::string_view> texts(std::string_view key) const {
    const core::GgufValue* value = find(key);
    if (value == nullptr) refuse(fmt::format("tokenizer.{} is missing", key));
    std::vector<std::string_view> list = value->texts();
    for (const std::string_view text : list) {
      if (!is_utf8(text)) refuse(fmt::format("tokenizer.{} has an entry that is not UTF-8", key));
    }
    return list;
  }
  bool boolean(std::string_view key, bool otherwise) const {
    const core::GgufValue* value = find(key);
    return value == nullptr ? otherwise : value->integer().value_or(otherwise) != 0;
  }
  std::string_view text(std::string_view key) const {
    const core::GgufValue* value = find(key);
    return value == nullptr ? std::string_view{} : value->text().value_or(std::string_view{});
  }
  std::string_view source() const { return source_; }

  [[noreturn]] void refuse(std::string_view what) const {
    throw Error(ErrorKind::kCorrupt, fmt::format("{}: {}", source_, what));
  }

 private:
  const core::GgufHeader& header_;
  std::string_view source_;
};

struct Tokens {
  std::vector<std::string_view> texts;
  std::vector<PieceType> types;  // as long as texts
};

Tokens read_tokens(const Metadata& metadata) {
  Tokens tokens;
  tokens.texts = metadata.texts("ggml.tokens");
  tokens.types.assign(tokens.texts.size(), PieceType::kNormal);
  const core::GgufValue* types = metadata.find("ggml.token_type");
  if (types == nullptr) return tokens;
  const std::vector<std::int64_t> numbers = types->integers();
  if (numbers.size() != tokens.texts.size()) {
    metadata.refuse(
        fmt::format("{} tokens and {} token types", tokens.texts.size(), numbers.size()));
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] < 1 || numbers[i] > 6) metadata.refuse("an unknown type of token");
    tokens.types[i] = static_cast<PieceType>(numbers[i]);
  }
  return tokens;
}

BpeFamily find_family(const Metadata& metadata) {
  const std::string_view name = metadata.text("ggml.pre");
  for (const std::string_view known :
       {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"}) {
    if (name == known) return BpeFamily::kSmolLm;
  }
  for (const std::string_view known : {"llama-bpe", "llama3", "llama-v3", "falcon3", "dbrx"}) {
    if (name == known) return BpeFamily::kLlama3;
  }
  if (name == "qwen2") return BpeFamily::kQwen2;
  if (name == "gpt-4o" || name == "llama4") return BpeFamily::kGpt4o;
  for (const std::string_view known : {"", "default", "gpt-2", "phi-2", "mpt", "olmo", "jina-es",
                                       "jina-de", "jina-v1-en", "roberta-bpe", "gigachat"}) {
    if (name == known) return BpeFamily::kGpt2;
  }
  throw Error(ErrorKind::kUnsupported,
              fmt::format("{}: the pre-tokenizer '{}' is not known", metadata.source(), name),
              "use the model's tokenizer.json");
}

Vocabulary make_vocabulary(const Tokens& tokens) {
  Vocabulary vocabulary;
  vocabulary.reserve(tokens.texts.size(), tokens.texts.size() * 8);
  for (std::size_t i = 0; i < tokens.texts.size(); ++i) {
    vocabulary.add(tokens.texts[i], static_cast<std::uint32_t>(i));
  }
  vocabulary.finish();
  return vocabulary;
}

void add_tokens(const Tokens& tokens, Pipeline& pipeline) {
  std::vector<AddedToken> added;
  for (std::size_t i = 0; i < tokens.texts.size(); ++i) {
    const bool is_control = tokens.types[i] == PieceType::kControl;
    if (!is_control && tokens.types[i] != PieceType::kUserDefined) continue;
    added.push_back(
        {.content = std::string(tokens.texts[i]), .normalized = false, .special = is_control});
  }
  pipeline.added.add(added, pipeline.model->vocabulary(), nullptr);
}

Pipeline read_bpe(const Metadata& metadata, const Tokens& tokens) {
  const BpeFamily family = find_family(metadata);
  Vocabulary vocabulary = make_vocabulary(tokens);
  std::vector<Merge> merges;
  for (const std::string_view line : metadata.texts("ggml.merges")) {
    const auto parts = split_merge(line);
    if (!parts) metadata.refuse(fmt::format("the merge '{}' is not two tokens", line));
    merges.push_back(find_merge(vocabulary, parts->first, parts->second, 0,
                                static_cast<std::uint32_t>(merges.size()), metadata.source()));
  }
  BpeOptions options;
  options.ignore_merges = family == BpeFamily::kLlama3;
  Pipeline pipeline;
  pipeline.model = make_bpe(std::move(vocabulary), merges, std::move(options));
  set_stages(pipeline, family);
  add_tokens(tokens, pipeline);
  return pipeline;
}

Pipeline read_sentencepiece(const Metadata& metadata, const Tokens& tokens, bool is_bpe) {
  SentencePieceModel model;
  std::vector<double> scores;
  if (const core::GgufValue* value = metadata.find("ggml.scores")) scores = value->numbers();
  if (scores.size() != tokens.texts.size()) metadata.refuse("tokens without scores");
  for (std::size_t i = 0; i < tokens.texts.size(); ++i) {
    model.entries.push_back(
        {std::string(tokens.texts[i]), static_cast<float>(scores[i]), tokens.types[i]});
  }
  model.is_bpe = is_bpe;
  model.byte_fallback = is_bpe;
  model.add_dummy_prefix = metadata.boolean("ggml.add_space_prefix", true);
  model.remove_extra_whitespaces = metadata.boolean("ggml.remove_extra_whitespaces", false);
  if (const core::GgufValue* charsmap = metadata.find("ggml.precompiled_charsmap")) {
    for (const std::int64_t byte : charsmap->integers()) {
      model.charsmap.push_back(static_cast<char>(byte));
    }
  }
  return build_sentencepiece(model, metadata.source());
}

// Words begin with a mark here and go on with "##" in the model's own files.
Pipeline read_word_piece(const Metadata& metadata, const Tokens& tokens) {
  Vocabulary vocabulary;
  for (std::size_t i = 0; i < tokens.texts.size(); ++i) {
    std::string token(tokens.texts[i]);
    const bool is_named = token.starts_with('[') && token.ends_with(']');
    // A mark alone begins no word: it is the character itself within one.
    if (token.starts_with(kMark) && token != kMark) {
      token.erase(0, kMark.size());
    } else if (tokens.types[i] == PieceType::kNormal && !is_named) {
      token = fmt::format("##{}", token);
    }
    vocabulary.add(token, static_cast<std::uint32_t>(i));
  }
  vocabulary.finish();
  if (vocabulary.size() != tokens.texts.size()) metadata.refuse("a token is given twice");
  Pipeline pipeline;
  pipeline.model = make_word_piece(std::move(vocabulary), {});
  set_bert_stages(pipeline, true);
  return pipeline;
}

}  // namespace

Pipeline read_gguf(const core::GgufHeader& header, std::string_view source) {
  const Metadata metadata(header, source);
  const std::string_view kind = metadata.text("ggml.model");
  if (kind.empty()) {
    throw Error(ErrorKind::kNotFound, fmt::format("{}: the file has no tokenizer", source));
  }
  const Tokens tokens = read_tokens(metadata);
  Pipeline pipeline;
  if (kind == "gpt2") {
    pipeline = read_bpe(metadata, tokens);
  } else if (kind == "llama" || kind == "t5") {
    pipeline = read_sentencepiece(metadata, tokens, kind == "llama");
  } else if (kind == "bert") {
    pipeline = read_word_piece(metadata, tokens);
  } else {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("{}: a tokenizer of kind '{}' is not known", source, kind));
  }
  const auto name = [&](std::string_view key) -> std::optional<std::string> {
    const core::GgufValue* value = metadata.find(key);
    if (value == nullptr || !value->integer()) return std::nullopt;
    const std::int64_t id = *value->integer();
    if (id < 0 || static_cast<std::uint64_t>(id) >= tokens.texts.size()) {
      metadata.refuse(
          fmt::format("tokenizer.{} is {}, and there are {} tokens", key, id, tokens.texts.size()));
    }
    return std::string(tokens.texts[static_cast<std::size_t>(id)]);
  };
  pipeline.special.bos = name("ggml.bos_token_id");
  pipeline.special.eos = name("ggml.eos_token_id");
  pipeline.special.unk = name("ggml.unknown_token_id");
  pipeline.special.pad = name("ggml.padding_token_id");
  const bool adds_bos = metadata.boolean("ggml.add_bos_token", kind == "llama");
  const bool adds_eos = metadata.boolean("ggml.add_eos_token", kind == "t5");
  if (kind != "bert" && (adds_bos || adds_eos)) {
    set_ends(pipeline, adds_bos ? pipeline.special.bos : std::nullopt,
             adds_eos ? pipeline.special.eos : std::nullopt);
  }
  if (const std::string_view source_text = metadata.text("chat_template"); !source_text.empty()) {
    if (!is_utf8(source_text)) metadata.refuse("the chat template is not UTF-8");
    pipeline.chat_template = std::string(source_text);
  }
  return pipeline;
}

}  // namespace haul::tokenizers
