#pragma once

// Tokens beside the model's vocabulary: found in the text before anything else happens to it.
// Filled once, then immutable.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tokenizers/byte_trie.h"
#include "tokenizers/model.h"
#include "tokenizers/normalizer.h"
#include "tokenizers/pre_tokenizer.h"

namespace haul::tokenizers {

struct AddedToken {
  std::string content;
  bool single_word = false;  // only where no word character is its neighbour
  bool lstrip = false;       // takes the whitespace before it
  bool rstrip = false;       // and after it
  bool normalized = true;    // is looked for in normalized text
  bool special = false;      // can be left out of decoded text

  bool operator==(const AddedToken&) const = default;
};

class AddedTokens {
 public:
  // Ids are the vocabulary's where it has the token, and new ones behind it otherwise.
  void add(const std::vector<AddedToken>& tokens, const Vocabulary& vocabulary,
           const Normalizer* normalizer);

  bool has_normalized() const { return normalized_.any; }

  // Splits text into added tokens and the parts between them, in order; none is empty.
  void find_raw(std::string_view text, std::vector<Piece>& pieces) const;
  void find_normalized(std::string_view text, std::vector<Piece>& pieces) const;

  std::optional<std::uint32_t> find(std::string_view content) const;
  // As it is shown and decoded: normalized where it was looked for so.
  const std::string* text(std::uint32_t id) const;
  bool is_special(std::string_view text) const { return special_.contains(std::string(text)); }
  // How many of them the vocabulary lacks.
  std::size_t new_count(const Vocabulary& vocabulary) const;

 private:
  struct Entry {
    AddedToken token;
    std::string text;
  };
  // The tokens that are looked for at one stage.
  struct Finder {
    ByteTrie trie;
    std::array<bool, 256> starts{};
    std::optional<char> only_start;  // where all begin with the same byte
    bool any = false;
  };

  void build(Finder& finder, bool normalized);
  // Where a token may begin, from `i` on; the text's size when nowhere.
  static std::size_t next_start(const Finder& finder, std::string_view text, std::size_t i);
  void find(const Finder& finder, std::string_view text, std::vector<Piece>& pieces) const;

  std::unordered_map<std::uint32_t, Entry> by_id_;
  std::unordered_map<std::string, std::uint32_t> by_content_;
  std::unordered_set<std::string> special_;
  Finder raw_;
  Finder normalized_;
};

}  // namespace haul::tokenizers
