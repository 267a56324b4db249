#pragma once

// Small tokenizers of every shape that the fast route knows, as tokenizer.json texts.

#include <string>
#include <vector>

#include <fmt/format.h>

#include "tokenizers/byte_level.h"
#include "tokenizers/scanners.h"
#include "tokenizers/utf8.h"

namespace haul::test {

inline std::string json_string(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

// All bytes, and merges that make "the", "he", " the", "aa", "aaaa" and more.
inline std::string byte_level_model() {
  std::string vocabulary;
  int id = 0;
  const auto add = [&](std::string_view token) {
    vocabulary += fmt::format("{}{}: {}", id == 0 ? "" : ", ", json_string(token), id);
    ++id;
  };
  for (const char32_t point : tokenizers::byte_to_point()) {
    std::string character;
    tokenizers::append_utf8(character, point);
    add(character);
  }
  const std::pair<const char*, const char*> merges[] = {
      {"h", "e"}, {"t", "he"}, {"a", "a"},   {"aa", "aa"},     {"i", "n"}, {"Ġ", "the"}, {"Ã", "©"},
      {"1", "2"}, {"Ġ", "Ġ"},  {"ĠĠ", "ĠĠ"}, {"aaaa", "aaaa"}, {"'", "s"}, {"in", "g"}};
  std::string list;
  for (const auto& [left, right] : merges) {
    add(std::string(left) + right);
    list +=
        fmt::format("{}[{}, {}]", list.empty() ? "" : ", ", json_string(left), json_string(right));
  }
  return fmt::format(R"({{"type": "BPE", "vocab": {{{}}}, "merges": [{}]}})", vocabulary, list);
}

inline std::string byte_level_tokenizer(std::string_view pre_tokenizer,
                                        std::string_view normalizer = "null") {
  return fmt::format(
      R"({{"version": "1.0", "added_tokens": [{{"id": 999, "content": "<end>", "special": true,
      "single_word": false, "lstrip": false, "rstrip": true, "normalized": false}}],
      "normalizer": {}, "pre_tokenizer": {}, "post_processor": null,
      "decoder": {{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true}},
      "model": {}}})",
      normalizer, pre_tokenizer, byte_level_model());
}

inline std::string split_pre_tokenizer(tokenizers::Scanner scanner) {
  const bool drops = scanner == tokenizers::Scanner::kClip;
  return fmt::format(
      R"({{"type": "Sequence", "pretokenizers": [{{"type": "Split", "pattern": {{"Regex": {}}},
      "behavior": "{}", "invert": {}}}, {{"type": "ByteLevel", "add_prefix_space": false,
      "trim_offsets": true, "use_regex": false}}]}})",
      json_string(tokenizers::pattern_of(scanner)), drops ? "Removed" : "Isolated", drops);
}

inline std::string word_piece_tokenizer() {
  return R"({"version": "1.0", "added_tokens": [{"id": 0, "content": "[UNK]", "special": true,
    "normalized": false}], "normalizer": {"type": "BertNormalizer", "clean_text": true,
    "handle_chinese_chars": true, "strip_accents": null, "lowercase": true},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
    "max_input_chars_per_word": 100, "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "the": 3,
    "##s": 4, "a": 5, "##a": 6, ".": 7, ",": 8, "'": 9, "中": 10, "e": 11, "1": 12, "##1": 13}}})";
}

inline std::string unigram_tokenizer() {
  return R"({"version": "1.0", "added_tokens": [], "normalizer": {"type": "Sequence",
    "normalizers": [{"type": "NFKC"}, {"type": "Replace", "pattern": {"Regex": " {2,}"},
    "content": " "}]}, "pre_tokenizer": {"type": "Metaspace", "replacement": "▁",
    "prepend_scheme": "always", "split": true}, "post_processor": null,
    "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
    "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": false, "vocab": [["<unk>", 0.0],
    ["▁", -2.0], ["▁the", -3.0], ["a", -3.5], ["aa", -4.0], ["e", -4.1], ["▁a", -4.2],
    ["1", -5.0], ["'s", -5.5], ["中", -6.0]]}})";
}

inline std::string whole_text_tokenizer() {
  return R"({"version": "1.0", "added_tokens": [{"id": 0, "content": "<unk>", "special": true,
    "normalized": false}], "normalizer": {"type": "Sequence", "normalizers": [
    {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "},
    "content": "▁"}]}, "pre_tokenizer": null, "post_processor": null,
    "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"},
    "content": " "}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "vocab": {"<unk>": 0, "▁": 1,
    "a": 2, "t": 3, "h": 4, "e": 5, "he": 6, "the": 7, "▁the": 8, "▁▁": 9, "aa": 10, "1": 11},
    "merges": [["h", "e"], ["t", "he"], ["▁", "the"], ["▁", "▁"], ["a", "a"]]}})";
}

// All of them.
inline std::vector<std::string> small_tokenizers() {
  using tokenizers::Scanner;
  std::vector<std::string> all;
  const std::string gpt2 =
      R"({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true})";
  all.push_back(byte_level_tokenizer(gpt2));
  all.push_back(byte_level_tokenizer(
      R"({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true},
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}]})"));
  for (const Scanner scanner :
       {Scanner::kCl100k, Scanner::kQwen2, Scanner::kO200k, Scanner::kClip}) {
    all.push_back(byte_level_tokenizer(split_pre_tokenizer(scanner), R"({"type": "NFC"})"));
  }
  all.push_back(word_piece_tokenizer());
  all.push_back(unigram_tokenizer());
  all.push_back(whole_text_tokenizer());
  return all;
}

}  // namespace haul::test
