#pragma once

// Where pipelines come from besides tokenizer.json. All throw Error with the file's name.

#include <filesystem>
#include <string_view>

#include "core/formats/gguf.h"
#include "tokenizers/family_stages.h"
#include "tokenizers/json_value.h"
#include "tokenizers/pipeline.h"

namespace haul::tokenizers {

// vocab.json and merges.txt, with the stages of the family.
Pipeline read_vocabulary_and_merges(std::string_view vocabulary, std::string_view merges,
                                    BpeFamily family, std::string_view source);

// vocab.txt of a BERT model.
Pipeline read_vocabulary_lines(std::string_view text, bool lowercase, std::string_view source);

// The tokenizer inside a GGUF file.
Pipeline read_gguf(const core::GgufHeader& header, std::string_view source);

// Puts one token before and one after each sequence.
void set_ends(Pipeline& pipeline, const std::optional<std::string>& before,
              const std::optional<std::string>& after);

// What tokenizer_config.json, special_tokens_map.json and chat_template.jinja of a folder add.
// Files that are not there are passed over.
void apply_tokenizer_config(const std::filesystem::path& folder, bool has_tokenizer_json,
                            Pipeline& pipeline);
// The class that tokenizer_config.json names, and whether it lowercases.
struct ConfiguredClass {
  std::string name;
  bool lowercase = true;
};
// What a tokenizer_config.json says, from its document.
void apply_tokenizer_config(const JsonValue& config, bool has_tokenizer_json, Pipeline& pipeline);
ConfiguredClass read_configured_class(const std::filesystem::path& folder);

}  // namespace haul::tokenizers
