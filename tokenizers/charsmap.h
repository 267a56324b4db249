#pragma once

// sentencepiece's precompiled charsmap: a double-array trie from byte strings to replacements.
// The bytes come from files, so that every step is checked. Immutable; from any thread.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace haul::tokenizers {

class Charsmap {
 public:
  Charsmap() = default;
  // The bytes as they stand in a model file. Throws Error(kCorrupt).
  explicit Charsmap(std::string_view bytes);

  struct Found {
    std::size_t size = 0;          // bytes of the key
    std::string_view replacement;  // lives as long as the map
  };
  // The shortest, or the longest, key that the text begins with.
  std::optional<Found> shortest(std::string_view text) const;
  std::optional<Found> longest(std::string_view text) const;

 private:
  std::optional<Found> find(std::string_view text, bool first) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

}  // namespace haul::tokenizers
