#pragma once

// What stands around the model of a known family, as the parts of its tokenizer.json: an object
// with "normalizer", "pre_tokenizer", "post_processor" and "decoder".

#include <optional>

#include "core/base/json.h"
#include "tokenizers/post_processor.h"

namespace haul::tokenizers {

// Families of byte-level BPE.
enum class BpeFamily { kGpt2, kRoberta, kClip, kQwen2, kLlama3, kSmolLm, kGpt4o };

// Without the special tokens that RoBERTa and CLIP put around a text.
core::Json byte_level_stages(BpeFamily family);

// [CLS] text [SEP] where both tokens are given.
core::Json bert_stages(bool lowercase, const std::optional<NamedId>& cls,
                       const std::optional<NamedId>& sep);

// How sentencepiece sees spaces.
struct SpaceRules {
  std::string charsmap;  // bytes as in the model's file; may be empty
  bool add_prefix = true;
  bool remove_extra = false;
  bool split_words = false;  // before the model, which then sees one word at a time
};
core::Json sentencepiece_stages(const SpaceRules& rules);

// A post-processor that puts one token before and one after each sequence.
core::Json surround(const std::optional<NamedId>& before, const std::optional<NamedId>& after);

}  // namespace haul::tokenizers
