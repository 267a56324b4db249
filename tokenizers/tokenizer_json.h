#pragma once

// tokenizer.json to a pipeline. Throws Error(kCorrupt) with the place in the document, and
// Error(kUnsupported) for a part of a kind that is not known.

#include <string_view>

#include "tokenizers/json_value.h"
#include "tokenizers/pipeline.h"

namespace haul::tokenizers {

Pipeline read_tokenizer_json(std::string_view json, std::string_view source);

// All stages but the model, from the whole document.
void read_stages(const JsonValue& root, Pipeline& pipeline);

// The parts, each from its own object.
std::unique_ptr<Model> read_model(const JsonValue& value);
// What the object says besides vocabulary and merges.
BpeOptions read_bpe_options(const JsonValue& value);
WordPieceOptions read_word_piece_options(const JsonValue& value);
// Without whatever puts text in front, when `later` is set.
std::unique_ptr<Normalizer> read_normalizer(const JsonValue& value, bool later);
std::unique_ptr<PreTokenizer> read_pre_tokenizer(const JsonValue& value);
std::unique_ptr<PostProcessor> read_post_processor(const JsonValue& value);
std::unique_ptr<Decoder> read_decoder(const JsonValue& value);
AddedToken read_added_token(const JsonValue& value);

// An entry of a merges list, "a b"; nothing when it is not two words.
std::optional<std::pair<std::string_view, std::string_view>> split_merge(std::string_view line);
// Ids of a merge. Throws Error(kCorrupt) when one is missing from the vocabulary.
Merge find_merge(const Vocabulary& vocabulary, std::string_view left, std::string_view right,
                 std::size_t prefix_size, std::uint32_t rank, std::string_view place);

}  // namespace haul::tokenizers
