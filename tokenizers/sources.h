#pragma once

// Where pipelines come from besides tokenizer.json. All throw Error with the file's name.

#include <filesystem>
#include <string_view>

#include "core/formats/gguf.h"
#include "tokenizers/json_value.h"
#include "tokenizers/pipeline.h"

namespace haul::tokenizers {

// A family's stages around a byte-level BPE model.
enum class BpeFamily { kGpt2, kRoberta, kClip, kQwen2, kLlama3, kSmolLm, kGpt4o };

// vocab.json and merges.txt, with the stages of the family.
Pipeline read_vocabulary_and_merges(std::string_view vocabulary, std::string_view merges,
                                    BpeFamily family, std::string_view source);

// vocab.txt of a BERT model.
Pipeline read_vocabulary_lines(std::string_view text, bool lowercase, std::string_view source);

// The tokenizer inside a GGUF file.
Pipeline read_gguf(const core::GgufHeader& header, std::string_view source);

// The stages of a byte-level family, in a pipeline that has its model.
void set_stages(Pipeline& pipeline, BpeFamily family);
// [CLS] text [SEP], or whatever the tokens are called; nothing where the vocabulary lacks one.
void set_bert_stages(Pipeline& pipeline, bool lowercase);

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
ConfiguredClass read_configured_class(const std::filesystem::path& folder);

}  // namespace haul::tokenizers
