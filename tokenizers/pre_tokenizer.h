#pragma once

// The second stage: normalized text to pieces, each of which the model turns into tokens. One
// class for each of tokenizer.json's pre-tokenizers. Immutable; from any thread.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tokenizers/pattern.h"
#include "tokenizers/text.h"

namespace haul::tokenizers {

inline constexpr std::uint32_t kNoToken = 0xFFFFFFFF;

// A part of the text; with a token when it is an added one, which nothing splits any more.
struct Piece {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::uint32_t token = kNoToken;
  bool at_start = false;  // begins where the original text begins
};

struct Pieces {
  Text text;
  std::vector<Piece> list;  // in order, none empty

  std::string_view bytes(const Piece& piece) const {
    return std::string_view(text.bytes()).substr(piece.begin, piece.end - piece.begin);
  }
};

enum class PrependScheme { kFirst, kNever, kAlways };

// What a pre-tokenizer does, for the fast route to recognise.
struct SplitStep {
  enum class Kind { kBert, kByteLevel, kDigits, kMetaspace, kPattern, kWhitespaceSplit, kOther };
  Kind kind = Kind::kOther;
  bool add_prefix_space = false;  // kByteLevel
  bool use_regex = false;         // kByteLevel
  bool individual = false;        // kDigits
  bool splits = false;            // kMetaspace
  bool keeps_matches = false;     // kPattern: every match is a piece
  bool drops_rest = false;        // kPattern: and what lies between is left out
  std::string text = {};          // kPattern: the expression; kMetaspace: the replacement
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void split(Pieces& pieces) const = 0;
  // Whether it looks at Piece::at_start.
  virtual bool needs_start() const { return false; }
  virtual void describe(std::vector<SplitStep>& steps) const { steps.push_back({}); }
};

std::unique_ptr<PreTokenizer> make_bert_pre_tokenizer();
std::unique_ptr<PreTokenizer> make_byte_level(bool add_prefix_space, bool use_regex);
std::unique_ptr<PreTokenizer> make_delimiter(char32_t delimiter);
std::unique_ptr<PreTokenizer> make_digits(bool individual);
std::unique_ptr<PreTokenizer> make_fixed_length(std::size_t length);
std::unique_ptr<PreTokenizer> make_metaspace(char32_t replacement, PrependScheme scheme,
                                             bool split);
std::unique_ptr<PreTokenizer> make_punctuation(SplitBehavior behavior);
// `expression` is the pattern's text where it is a regular expression, and empty otherwise.
std::unique_ptr<PreTokenizer> make_split(std::unique_ptr<Pattern> pattern, SplitBehavior behavior,
                                         bool invert, std::string expression);
std::unique_ptr<PreTokenizer> make_unicode_scripts();
std::unique_ptr<PreTokenizer> make_whitespace();
std::unique_ptr<PreTokenizer> make_whitespace_split();
std::unique_ptr<PreTokenizer> make_pre_tokenizer_sequence(
    std::vector<std::unique_ptr<PreTokenizer>> parts);

// GPT-2's pattern, which ByteLevel applies with use_regex.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace haul::tokenizers
