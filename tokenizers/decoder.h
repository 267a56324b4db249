#pragma once

// Tokens back to text. One class for each of tokenizer.json's decoders. Immutable; from any thread.

#include <memory>
#include <string>
#include <vector>

#include "tokenizers/pattern.h"
#include "tokenizers/pre_tokenizer.h"

namespace haul::tokenizers {

class Decoder {
 public:
  virtual ~Decoder() = default;
  // Rewrites the tokens; the text is what they are joined.
  virtual void decode(std::vector<std::string>& tokens) const = 0;
  // Whether a token's text depends on the token before it and on being the first, and on nothing
  // else, so that a stream can be decoded in a window.
  virtual bool is_local() const = 0;
};

std::unique_ptr<Decoder> make_byte_level_decoder();
std::unique_ptr<Decoder> make_word_piece_decoder(std::string prefix, bool cleanup);
std::unique_ptr<Decoder> make_metaspace_decoder(char32_t replacement, PrependScheme scheme);
std::unique_ptr<Decoder> make_bpe_decoder(std::string suffix);
std::unique_ptr<Decoder> make_byte_fallback_decoder();
std::unique_ptr<Decoder> make_fuse_decoder();
std::unique_ptr<Decoder> make_strip_decoder(char32_t content, std::size_t start, std::size_t stop);
std::unique_ptr<Decoder> make_replace_decoder(std::unique_ptr<Pattern> pattern,
                                              std::string content);
std::unique_ptr<Decoder> make_ctc_decoder(std::string pad_token, std::string word_delimiter_token,
                                          bool cleanup);
std::unique_ptr<Decoder> make_decoder_sequence(std::vector<std::unique_ptr<Decoder>> parts);

// Takes out the spaces that tokenization put before punctuation and English contractions; with
// `negation`, " do not" becomes " don't" as well.
std::string clean_up_spaces(std::string text, bool negation);

}  // namespace haul::tokenizers
