#pragma once

// The files that a model's folder has for the tokenizer inside a GGUF file, as the tokenizers
// library, Transformers and haul read them: tokenizer.json, tokenizer_config.json, and
// generation_config.json where the model generates.

#include <string>
#include <string_view>
#include <vector>

#include "core/formats/gguf.h"

namespace haul::tokenizers {

struct TextFile {
  std::string name;
  std::string text;
};

// Throws Error that names `source`: kNotFound where there is no tokenizer, kUnsupported for one of
// an unknown kind, kCorrupt for one that contradicts itself.
std::vector<TextFile> make_gguf_files(const core::GgufHeader& header, std::string_view source);

}  // namespace haul::tokenizers
