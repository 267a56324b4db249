#pragma once

// The tokenizer inside a GGUF file as what its tokenizer.json and tokenizer_config.json say. The
// engine is built from it, and `haul convert` writes it: one reading of the metadata for both.

#include <optional>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/formats/gguf.h"
#include "tokenizers/added_tokens.h"
#include "tokenizers/model.h"
#include "tokenizers/sentencepiece.h"

namespace haul::tokenizers {

struct GgufTokenizer {
  // tokenizer.json without the long lists: the stages around the model, and the model's options.
  core::Json stages;
  core::Json config;      // tokenizer_config.json
  core::Json generation;  // generation_config.json: the ids that begin and end a text

  // The lists.
  Vocabulary vocabulary;
  std::vector<Merge> merges;                   // of BPE, each ranked by its place
  std::optional<SentencePieceModel> unigrams;  // of Unigram, with the scores
  std::vector<AddedToken> added;               // all of them in the vocabulary
};

// Throws Error that names `source`: kNotFound where the file has no tokenizer, kUnsupported for one
// of an unknown kind, kCorrupt for one that contradicts itself.
GgufTokenizer parse_gguf_tokenizer(const core::GgufHeader& header, std::string_view source);

}  // namespace haul::tokenizers
