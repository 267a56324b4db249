#pragma once

// What a GGUF file says of its tokenizer besides the model: which tokens are special, what stands
// around a text, the chat template.

#include <string_view>

#include "tokenizers/gguf_metadata.h"
#include "tokenizers/gguf_tokenizer.h"

namespace haul::tokenizers {

// The length of a text of nothing but spaces or sentencepiece's marks for them; 0 for others.
std::size_t count_spaces(std::string_view text);

// Fills in the post-processor, the added tokens and the configs of a tokenizer that has its
// vocabulary and stages. `kind` is tokenizer.ggml.model.
void add_configuration(const GgufMetadata& metadata, const GgufTokens& tokens,
                       std::string_view kind, GgufTokenizer& tokenizer);

}  // namespace haul::tokenizers
