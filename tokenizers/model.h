#pragma once

// The third stage: a piece of text to tokens. Models are immutable and may be used from any
// thread; what a call needs to work with is in a ModelScratch, one for each caller.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizers/vocabulary.h"

namespace haul::tokenizers {

struct Token {
  std::uint32_t id = 0;
  std::uint32_t begin = 0;  // bytes of the piece
  std::uint32_t end = 0;
  bool is_surface = false;  // shown as the text of the piece, not as the vocabulary's entry
};

struct ModelScratch {
  struct Symbol {
    std::uint32_t id = 0;
    std::uint32_t size = 0;  // bytes; 0 once merged away
    std::int32_t previous = -1;
    std::int32_t next = -1;
  };
  struct Node {
    double score = 0;
    std::uint32_t begin = 0;
    std::uint32_t id = 0;
    bool reached = false;
  };
  std::vector<Symbol> symbols;
  std::vector<std::uint32_t> ranks;
  std::vector<std::uint64_t> heap;
  std::vector<Node> nodes;
  std::string text;
};

class Model {
 public:
  explicit Model(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // REQUIRES: well-formed text, not empty. Appends. Throws Error(kUnsupported) for text that the
  // vocabulary cannot express and for which it names no unknown token.
  virtual void tokenize(std::string_view piece, std::vector<Token>& tokens,
                        ModelScratch& scratch) const = 0;
  // Whether tokens(a + b) is tokens(a) + tokens(b) wherever `mark` begins b and does not end a.
  virtual bool splits_before(std::string_view mark) const = 0;

  // Whether spaces of the text are part of tokens, as with BPE.
  virtual bool keeps_spaces() const { return false; }

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  Vocabulary vocabulary_;
};

struct BpeOptions {
  std::optional<std::string> unk_token;
  std::string continuing_subword_prefix;
  std::string end_of_word_suffix;
  bool fuse_unk = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
  std::vector<std::uint32_t> hidden;  // ids, ascending, that no character gets
};

// Ids of two neighbours, and of what they become; earlier ones are preferred.
struct Merge {
  std::uint32_t left = 0;
  std::uint32_t right = 0;
  std::uint32_t merged = 0;
  std::uint32_t rank = 0;
};
std::unique_ptr<Model> make_bpe(Vocabulary vocabulary, const std::vector<Merge>& merges,
                                BpeOptions options);

struct WordPieceOptions {
  std::string unk_token = "[UNK]";
  std::string continuing_subword_prefix = "##";
  std::size_t max_input_chars_per_word = 100;
};
std::unique_ptr<Model> make_word_piece(Vocabulary vocabulary, WordPieceOptions options);

std::unique_ptr<Model> make_word_level(Vocabulary vocabulary, std::string unk_token);

struct UnigramOptions {
  std::optional<std::uint32_t> unk_id;
  bool byte_fallback = false;
  bool single_precision = false;       // adds scores as sentencepiece does
  std::optional<double> lowest_score;  // instead of the lowest of all
};
// The i-th score is of the token with id i; the lowest of them sets the price of an unknown
// character. Tokens whose score is NaN are never chosen.
std::unique_ptr<Model> make_unigram(Vocabulary vocabulary, std::vector<double> scores,
                                    UnigramOptions options);

// The ids of "<0x00>" to "<0xFF>"; kNoByte where one is missing.
inline constexpr std::uint32_t kNoByte = 0xFFFFFFFF;
std::vector<std::uint32_t> byte_tokens(const Vocabulary& vocabulary);

}  // namespace haul::tokenizers
