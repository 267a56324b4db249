#pragma once

// The patterns that real models split with, each as a loop over bytes instead of a regular
// expression. Tests hold every one of them against the general engine.

#include <optional>
#include <string_view>
#include <vector>

namespace haul::tokenizers {

enum class Scanner {
  kGpt2,        // ByteLevel with its own pattern
  kGpt2Digits,  // Digits, one by one, then the same
  kCl100k,      // GPT-4 and Llama 3: numbers of up to three digits
  kQwen2,       // the same, digits one by one
  kO200k,       // GPT-4o: words also end where case changes
  kClip,        // no spaces
};

// The scanner for a pattern, if there is one.
std::optional<Scanner> find_scanner(std::string_view pattern);
// The pattern itself; for kGpt2Digits that of kGpt2.
std::string_view pattern_of(Scanner scanner);

// Calls take(const char* begin, const char* end) for each piece of well-formed text, in order.
template <class Take>
void scan(Scanner scanner, std::string_view text, Take&& take);

}  // namespace haul::tokenizers

#include "tokenizers/scanners_inline.h"
