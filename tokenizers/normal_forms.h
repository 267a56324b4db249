#pragma once

// Unicode normalization (NFC, NFD, NFKC, NFKD) by the tables of the pinned peer, with its account
// of which characters stand for which, so that offsets come out the same.

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizers/text.h"

namespace haul::tokenizers {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Whether the text is surely normal already; false when in doubt.
bool is_surely_normal(NormalForm form, std::string_view text);

// REQUIRES: well-formed text. Appends.
void normalize(NormalForm form, std::string_view text, std::vector<Change>& changes);

class Decompositions {
 public:
  static const Decompositions& get();

  // Empty when the character stands for itself.
  std::span<const std::uint32_t> canonical(char32_t point) const;
  std::span<const std::uint32_t> compatible(char32_t point) const;
  // 0 when the two do not compose.
  char32_t compose(char32_t first, char32_t second) const;
  // Each character that a form can change, with its kNotNf… bits.
  void for_each_unstable(const std::function<void(char32_t, std::uint16_t)>& take) const;

 private:
  Decompositions();

  std::unordered_map<char32_t, std::span<const std::uint32_t>> canonical_;
  std::unordered_map<char32_t, std::span<const std::uint32_t>> compatible_;
  std::unordered_map<std::uint64_t, char32_t> compositions_;
  std::vector<char32_t> composed_;  // stay as they are under NFC; ascending
};

// The generated tables, in unicode.cpp.
std::span<const std::uint32_t> canonical_data();
std::span<const std::uint32_t> compatible_data();

}  // namespace haul::tokenizers
