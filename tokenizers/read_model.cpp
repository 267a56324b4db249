// The "model" object of tokenizer.json.

#include <fmt/format.h>

#include "haul/error.h"
#include "tokenizers/tokenizer_json.h"

namespace haul::tokenizers {
namespace {

Vocabulary read_vocabulary(const JsonValue& value) {
  if (!value.is_object()) value.refuse("an object of tokens and ids");
  const simdjson::dom::object object = value.element().get_object();
  Vocabulary vocabulary;
  vocabulary.reserve(object.size(), object.size() * 8);
  for (const auto field : object) {
    std::uint64_t id = 0;
    if (field.value.get(id) || id >= kNoToken) {
      JsonValue(field.value, fmt::format("{}.{}", value.place(), field.key)).refuse("an id");
    }
    vocabulary.add(field.key, static_cast<std::uint32_t>(id));
  }
  vocabulary.finish();
  return vocabulary;
}

std::vector<Merge> read_merges(const JsonValue& value, const Vocabulary& vocabulary,
                               std::size_t prefix_size) {
  if (!value.is_array()) value.refuse("an array of merges");
  const simdjson::dom::array array = value.element().get_array();
  std::vector<Merge> merges;
  merges.reserve(array.size());
  for (const simdjson::dom::element item : array) {
    std::string_view left;
    std::string_view right;
    std::string_view line;
    if (!item.get(line)) {
      if (line.starts_with("#version")) continue;
      const auto parts = split_merge(line);
      if (!parts) JsonValue(item, value.place()).refuse("two tokens with a space between them");
      std::tie(left, right) = *parts;
    } else if (!item.is_array() || item.get_array().value().size() != 2 || item.at(0).get(left) ||
               item.at(1).get(right)) {
      JsonValue(item, value.place()).refuse("a pair of tokens");
    }
    merges.push_back(find_merge(vocabulary, left, right, prefix_size,
                                static_cast<std::uint32_t>(merges.size()), value.place()));
  }
  return merges;
}

std::unique_ptr<Model> read_bpe(const JsonValue& value) {
  BpeOptions options = read_bpe_options(value);
  Vocabulary vocabulary = read_vocabulary(value.at("vocab"));
  const std::vector<Merge> merges =
      read_merges(value.at("merges"), vocabulary, options.continuing_subword_prefix.size());
  return make_bpe(std::move(vocabulary), merges, std::move(options));
}

std::unique_ptr<Model> read_unigram(const JsonValue& value) {
  const JsonValue list = value.at("vocab");
  if (!list.is_array()) list.refuse("an array of tokens and scores");
  const simdjson::dom::array array = list.element().get_array();
  Vocabulary vocabulary;
  vocabulary.reserve(array.size(), array.size() * 8);
  std::vector<double> scores;
  scores.reserve(array.size());
  for (const simdjson::dom::element item : array) {
    std::string_view token;
    double score = 0;
    if (!item.is_array() || item.get_array().value().size() != 2 || item.at(0).get(token) ||
        item.at(1).get(score)) {
      JsonValue(item, list.place()).refuse("a token and its score");
    }
    vocabulary.add(token, static_cast<std::uint32_t>(scores.size()));
    scores.push_back(score);
  }
  vocabulary.finish();
  UnigramOptions options;
  if (const auto unk = value.find("unk_id")) {
    options.unk_id = unk->id();
    if (*options.unk_id >= scores.size()) unk->refuse("an id of the vocabulary");
  }
  options.byte_fallback = value.boolean_or("byte_fallback", false);
  return make_unigram(std::move(vocabulary), std::move(scores), options);
}

// Files of old versions leave the type out.
std::string_view guess_type(const JsonValue& value) {
  if (value.find("merges")) return "BPE";
  const auto vocab = value.find("vocab");
  if (vocab && vocab->is_array()) return "Unigram";
  return value.find("continuing_subword_prefix") ? "WordPiece" : "WordLevel";
}

}  // namespace

BpeOptions read_bpe_options(const JsonValue& value) {
  if (const auto dropout = value.find("dropout"); dropout && dropout->number() != 0) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("{}: a random tokenizer is not supported", dropout->place()));
  }
  BpeOptions options;
  if (const auto unk = value.find("unk_token")) options.unk_token = std::string(unk->string());
  options.continuing_subword_prefix = value.string_or("continuing_subword_prefix", "");
  options.end_of_word_suffix = value.string_or("end_of_word_suffix", "");
  options.fuse_unk = value.boolean_or("fuse_unk", false);
  options.byte_fallback = value.boolean_or("byte_fallback", false);
  options.ignore_merges = value.boolean_or("ignore_merges", false);
  return options;
}

WordPieceOptions read_word_piece_options(const JsonValue& value) {
  WordPieceOptions options;
  options.unk_token = value.at("unk_token").string();
  options.continuing_subword_prefix = value.at("continuing_subword_prefix").string();
  options.max_input_chars_per_word = value.at("max_input_chars_per_word").unsigned_integer();
  return options;
}

std::unique_ptr<Model> read_model(const JsonValue& value) {
  const auto type = value.find("type");
  const std::string_view name = type ? type->string() : guess_type(value);
  if (name == "BPE") return read_bpe(value);
  if (name == "Unigram") return read_unigram(value);
  if (name == "WordLevel") {
    return make_word_level(read_vocabulary(value.at("vocab")),
                           std::string(value.at("unk_token").string()));
  }
  if (name == "WordPiece") {
    WordPieceOptions options = read_word_piece_options(value);
    return make_word_piece(read_vocabulary(value.at("vocab")), std::move(options));
  }
  throw Error(ErrorKind::kUnsupported,
              fmt::format("{}: unknown kind of model '{}'", value.place(), name));
}

std::optional<std::pair<std::string_view, std::string_view>> split_merge(std::string_view line) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
    return std::nullopt;
  }
  return std::pair{line.substr(0, space), line.substr(space + 1)};
}

Merge find_merge(const Vocabulary& vocabulary, std::string_view left, std::string_view right,
                 std::size_t prefix_size, std::uint32_t rank, std::string_view place) {
  const auto find = [&](std::string_view token) {
    const auto id = vocabulary.find(token);
    if (!id) {
      throw Error(ErrorKind::kCorrupt, fmt::format("{}: the merge '{} {}' needs the token '{}', "
                                                   "which the vocabulary lacks",
                                                   place, left, right, token));
    }
    return *id;
  };
  const std::uint32_t first = find(left);
  const std::uint32_t second = find(right);
  if (right.size() < prefix_size) find({});
  // Nearly all merged tokens are short.
  char buffer[64];
  const std::string_view rest = right.substr(std::min(prefix_size, right.size()));
  if (left.size() + rest.size() <= sizeof(buffer)) {
    left.copy(buffer, left.size());
    rest.copy(buffer + left.size(), rest.size());
    return {first, second, find({buffer, left.size() + rest.size()}), rank};
  }
  return {first, second, find(std::string(left).append(rest)), rank};
}

}  // namespace haul::tokenizers
