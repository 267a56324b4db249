#pragma once

// sentencepiece's model files, read from their protobuf bytes by a bounded reader of our own.
// Encoding follows sentencepiece's own library: its normalization, scores in single precision, and
// for BPE the best-scored neighbours first.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/pipeline.h"

namespace haul::tokenizers {

enum class PieceType { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

// What a model file, or the tokenizer inside a GGUF file, says.
struct SentencePieceModel {
  struct Entry {
    std::string text;
    float score = 0;
    PieceType type = PieceType::kNormal;
  };
  std::vector<Entry> entries;
  bool is_bpe = false;
  bool byte_fallback = false;
  bool whitespace_is_suffix = false;
  std::string charsmap;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

// Throws Error(kCorrupt) that names `source`; Error(kUnsupported) for models of words or
// characters.
SentencePieceModel parse_sentencepiece(std::string_view bytes, std::string_view source);

// The pieces and their places. Throws Error(kCorrupt) for one that is empty or given twice.
Vocabulary piece_vocabulary(const SentencePieceModel& model, std::string_view source);

// Every way to make a piece of two others; higher scores first, and equal ones of equal rank.
std::vector<Merge> make_merges(const SentencePieceModel& model, const Vocabulary& vocabulary);

Pipeline build_sentencepiece(const SentencePieceModel& model, std::string_view source);

Pipeline read_sentencepiece(std::string_view bytes, std::string_view source);

}  // namespace haul::tokenizers
