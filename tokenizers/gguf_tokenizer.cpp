#include "tokenizers/gguf_tokenizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include <fmt/format.h>

#include "haul/error.h"
#include "tokenizers/family_stages.h"
#include "tokenizers/gguf_config.h"
#include "tokenizers/gguf_metadata.h"
#include "tokenizers/tokenizer_json.h"

namespace haul::tokenizers {
namespace {

using core::Json;

constexpr std::string_view kMark = "\xE2\x96\x81";

BpeFamily find_family(const GgufMetadata& metadata, std::string_view name) {
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

void parse_byte_level(const GgufMetadata& metadata, const GgufTokens& tokens,
                      GgufTokenizer& result) {
  const BpeFamily family = find_family(metadata, metadata.text("ggml.pre"));
  result.vocabulary.reserve(tokens.texts.size(), tokens.texts.size() * 8);
  for (std::size_t i = 0; i < tokens.texts.size(); ++i) {
    result.vocabulary.add(tokens.texts[i], static_cast<std::uint32_t>(i));
  }
  result.vocabulary.finish();
  for (const std::string_view line : metadata.texts("ggml.merges")) {
    const auto parts = split_merge(line);
    if (!parts) metadata.refuse(fmt::format("the merge '{}' is not two tokens", line));
    result.merges.push_back(find_merge(result.vocabulary, parts->first, parts->second, 0,
                                       static_cast<std::uint32_t>(result.merges.size()),
                                       metadata.source()));
  }
  result.stages = byte_level_stages(family);
  result.stages["model"] = {{"type", "BPE"}, {"ignore_merges", family == BpeFamily::kLlama3}};
}

// Pieces with their scores. User-defined ones are found in a text before the model sees it, but
// for runs of spaces: these are made of spaces.
SentencePieceModel parse_pieces(const GgufMetadata& metadata, const GgufTokens& tokens,
                                bool is_bpe) {
  SentencePieceModel model;
  std::vector<double> scores;
  if (const core::GgufValue* value = metadata.find("ggml.scores")) scores = value->numbers();
  if (scores.size() != tokens.texts.size()) metadata.refuse("tokens without scores");
  model.entries.reserve(tokens.texts.size());
  for (std::size_t i = 0; i < tokens.texts.size(); ++i) {
    auto score = static_cast<float>(scores[i]);
    if (!std::isfinite(score)) metadata.refuse("a score that is not finite");
    SentencePieceModel::Entry entry{std::string(tokens.texts[i]), score, tokens.types[i]};
    if (entry.type == PieceType::kUserDefined) {
      const std::size_t spaces = count_spaces(entry.text);
      entry.type = spaces > 0 ? PieceType::kNormal : PieceType::kUnused;
      if (spaces > 0) {
        entry.text.clear();
        for (std::size_t k = 0; k < spaces; ++k) entry.text += kMark;
        if (is_bpe) entry.score = std::numeric_limits<float>::max();
      }
    }
    model.entries.push_back(std::move(entry));
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
  return model;
}

// Merges in one order: by score, and those of one piece by the ids of its parts.
std::vector<Merge> ordered_merges(const SentencePieceModel& model, const Vocabulary& vocabulary) {
  std::vector<Merge> merges = make_merges(model, vocabulary);
  std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    return std::tie(a.rank, a.merged, a.left, a.right) <
           std::tie(b.rank, b.merged, b.left, b.right);
  });
  for (std::size_t i = 0; i < merges.size(); ++i) merges[i].rank = static_cast<std::uint32_t>(i);
  return merges;
}

// Whether the model sees every word alone as it would see it in the text.
bool splits_into_words(const SentencePieceModel& model) {
  bool has_mark = false;
  for (const auto& entry : model.entries) {
    if (entry.type != PieceType::kNormal) continue;
    has_mark = has_mark || entry.text == kMark;
    if (entry.text.find(kMark, 1) != std::string::npos) return false;
  }
  return has_mark;
}

void parse_sentencepiece(const GgufMetadata& metadata, const GgufTokens& tokens, bool is_bpe,
                         GgufTokenizer& result) {
  SentencePieceModel model = parse_pieces(metadata, tokens, is_bpe);
  std::optional<std::uint32_t> unknown;
  result.vocabulary = piece_vocabulary(model, metadata.source());
  for (std::size_t i = 0; i < model.entries.size(); ++i) {
    if (model.entries[i].type == PieceType::kUnknown) unknown = static_cast<std::uint32_t>(i);
  }
  SpaceRules rules;
  rules.charsmap = model.charsmap;
  rules.add_prefix = model.add_dummy_prefix;
  rules.remove_extra = model.remove_extra_whitespaces;
  rules.split_words = !is_bpe && splits_into_words(model);
  result.stages = sentencepiece_stages(rules);
  if (is_bpe) {
    result.merges = ordered_merges(model, result.vocabulary);
    result.stages["model"] = {{"type", "BPE"},
                              {"unk_token", nullptr},
                              {"fuse_unk", true},
                              {"byte_fallback", model.byte_fallback}};
    if (unknown) result.stages["model"]["unk_token"] = model.entries[*unknown].text;
  } else {
    result.stages["model"] = {{"type", "Unigram"}, {"unk_id", nullptr}, {"byte_fallback", false}};
    if (unknown) result.stages["model"]["unk_id"] = *unknown;
    result.unigrams = std::move(model);
  }
}

// Words begin with a mark here and go on with "##" in the model's own files.
void parse_word_piece(const GgufMetadata& metadata, const GgufTokens& tokens,
                      GgufTokenizer& result) {
  bool has_capitals = false;
  for (std::size_t i = 0; i < tokens.texts.size(); ++i) {
    std::string token(tokens.texts[i]);
    const bool is_named = token.starts_with('[') && token.ends_with(']');
    const bool is_normal = tokens.types[i] == PieceType::kNormal && !is_named;
    has_capitals =
        has_capitals || (is_normal && std::any_of(token.begin(), token.end(),
                                                  [](char c) { return c >= 'A' && c <= 'Z'; }));
    // A mark alone begins no word: it is the character itself within one.
    if (token.starts_with(kMark) && token != kMark) {
      token.erase(0, kMark.size());
    } else if (is_normal) {
      token = fmt::format("##{}", token);
    }
    result.vocabulary.add(token, static_cast<std::uint32_t>(i));
  }
  result.vocabulary.finish();
  if (result.vocabulary.size() != tokens.texts.size()) metadata.refuse("a token is given twice");
  const WordPieceOptions options;
  result.stages = bert_stages(!has_capitals, std::nullopt, std::nullopt);
  result.stages["model"] = {{"type", "WordPiece"},
                            {"unk_token", options.unk_token},
                            {"continuing_subword_prefix", options.continuing_subword_prefix},
                            {"max_input_chars_per_word", options.max_input_chars_per_word}};
}

}  // namespace

std::size_t count_spaces(std::string_view text) {
  std::size_t count = 0;
  while (!text.empty()) {
    const std::size_t size = text.starts_with(kMark) ? kMark.size() : 1;
    if (size == 1 && text[0] != ' ') return 0;
    text.remove_prefix(size);
    ++count;
  }
  return count;
}

GgufTokenizer parse_gguf_tokenizer(const core::GgufHeader& header, std::string_view source) {
  const GgufMetadata metadata(header, source);
  const std::string_view kind = metadata.text("ggml.model");
  if (kind.empty() || kind == "none" || kind == "no_vocab") {
    throw Error(ErrorKind::kNotFound, fmt::format("{}: the file has no tokenizer", source));
  }
  if (kind != "gpt2" && kind != "llama" && kind != "t5" && kind != "bert") {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("{}: a tokenizer of kind '{}' is not known", source, kind));
  }
  const GgufTokens tokens = metadata.tokens();
  GgufTokenizer result;
  if (kind == "gpt2") {
    parse_byte_level(metadata, tokens, result);
  } else if (kind == "bert") {
    parse_word_piece(metadata, tokens, result);
  } else {
    parse_sentencepiece(metadata, tokens, kind == "llama", result);
  }
  add_configuration(metadata, tokens, kind, result);
  return result;
}

}  // namespace haul::tokenizers
