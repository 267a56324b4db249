#pragma once

// The last stage of encoding: truncation, the special tokens around one or two sequences, and
// padding. Immutable; from any thread.

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "haul/tokenizer.h"

namespace haul::tokenizers {

class PostProcessor {
 public:
  virtual ~PostProcessor() = default;
  // Tokens that it adds to a sequence or a pair.
  virtual std::size_t added(bool is_pair) const = 0;
  // One or two encodings in, any number out, to be joined.
  virtual std::vector<Encoding> process(std::vector<Encoding> encodings,
                                        bool add_special_tokens) const = 0;
};

struct NamedId {
  std::string token;
  TokenId id = 0;
};

std::unique_ptr<PostProcessor> make_bert_processor(NamedId sep, NamedId cls);
std::unique_ptr<PostProcessor> make_roberta_processor(NamedId sep, NamedId cls, bool trim_offsets,
                                                      bool add_prefix_space);
std::unique_ptr<PostProcessor> make_byte_level_processor(bool trim_offsets, bool add_prefix_space);

struct TemplatePiece {
  enum class Kind { kFirst, kSecond, kSpecial };
  Kind kind = Kind::kFirst;
  std::uint32_t type_id = 0;
  std::vector<NamedId> special;
};
std::unique_ptr<PostProcessor> make_template_processor(std::vector<TemplatePiece> single,
                                                       std::vector<TemplatePiece> pair);
std::unique_ptr<PostProcessor> make_post_processor_sequence(
    std::vector<std::unique_ptr<PostProcessor>> parts);

struct Truncation {
  enum class Strategy { kLongestFirst, kOnlyFirst, kOnlySecond };
  std::size_t max_length = 512;
  std::size_t stride = 0;
  Strategy strategy = Strategy::kLongestFirst;
  bool left = false;
};

struct Padding {
  std::optional<std::size_t> fixed;  // otherwise to the longest of a batch
  std::size_t multiple_of = 0;
  TokenId id = 0;
  std::uint32_t type_id = 0;
  std::string token = "[PAD]";
  bool left = false;
};

// REQUIRES: one or two encodings. Throws Error(kUsage) when the sequence is too short for the
// strategy or the stride too long.
void truncate(std::vector<Encoding>& encodings, const Truncation& truncation);

// Joins them in order; what overflows is combined.
Encoding join(std::vector<Encoding> encodings);

// The length that a batch is padded to.
std::size_t padded_length(std::size_t longest, const Padding& padding);
void pad(Encoding& encoding, std::size_t length, const Padding& padding);

// The same for ids alone, of one sequence that begins at `begin`.
void truncate_ids(std::vector<TokenId>& ids, std::size_t begin, const Truncation& truncation);
void pad_ids(std::vector<TokenId>& ids, std::size_t length, const Padding& padding);

}  // namespace haul::tokenizers
