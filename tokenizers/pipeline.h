#pragma once

// All stages of one tokenizer, and the plain route through them. The fast route (fast_route.h)
// must give the same ids.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "haul/tokenizer.h"
#include "tokenizers/added_tokens.h"
#include "tokenizers/decoder.h"
#include "tokenizers/model.h"
#include "tokenizers/normalizer.h"
#include "tokenizers/post_processor.h"
#include "tokenizers/pre_tokenizer.h"

namespace haul::tokenizers {

struct Pipeline {
  std::unique_ptr<Normalizer> normalizer;  // may be null, like all but the model
  // The normalizer without what it puts in front of a text, where that can be told apart.
  std::unique_ptr<Normalizer> later_normalizer;
  bool prepends = false;  // later_normalizer differs
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  std::unique_ptr<Model> model;
  std::unique_ptr<PostProcessor> post_processor;
  std::unique_ptr<Decoder> decoder;
  AddedTokens added;
  std::optional<Truncation> truncation;
  std::optional<Padding> padding;
  bool clean_up_spaces = false;  // after decoding
  SpecialTokens special;
  std::optional<std::string> chat_template;
  // Where there are several: by name, the default among them.
  std::map<std::string, std::string> named_templates;
};

// What one caller works with.
struct PlainScratch {
  Pieces pieces;
  Text part;
  std::vector<Piece> raw;
  std::vector<Piece> found;
  std::vector<Token> tokens;
  ModelScratch model;
};

// Normalizes and splits into scratch.pieces. REQUIRES: well-formed text, shorter than 4 GiB.
void split_text(const Pipeline& pipeline, std::string_view text, bool tracked,
                PlainScratch& scratch);

// Ids of the text, without special tokens. Appends.
void plain_ids(const Pipeline& pipeline, std::string_view text, PlainScratch& scratch,
               std::vector<TokenId>& ids);

// Everything about the text, without special tokens.
Encoding plain_encoding(const Pipeline& pipeline, std::string_view text, std::uint32_t type_id,
                        PlainScratch& scratch);

// Truncation, special tokens and padding, of one sequence or two.
Encoding post_process(const Pipeline& pipeline, std::vector<Encoding> encodings,
                      const EncodeOptions& options);

std::string decode(const Pipeline& pipeline, std::span<const TokenId> ids,
                   bool skip_special_tokens);

}  // namespace haul::tokenizers
