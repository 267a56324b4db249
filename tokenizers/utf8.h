#pragma once

// UTF-8: reading and writing code points, and repairing text that is not well-formed.
// Pure; from any thread.

#include <cstddef>
#include <string>
#include <string_view>

#include "core/base/utf8.h"

namespace haul::tokenizers {

using core::is_utf8;

inline constexpr char32_t kReplacement = 0xFFFD;

// Bytes of the character that begins with this byte. REQUIRES: well-formed text.
inline std::size_t utf8_size(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

inline std::size_t utf8_size(char32_t point) {
  return point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
}

inline bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

// The code point at `at`. REQUIRES: well-formed text.
inline char32_t utf8_point(const char* at) {
  const auto byte = [at](int i) {
    return static_cast<char32_t>(static_cast<unsigned char>(at[i]));
  };
  if (byte(0) < 0x80) return byte(0);
  if (byte(0) < 0xE0) return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
  if (byte(0) < 0xF0) {
    return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  }
  return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
}

// The start of the character that ends just before `at`. REQUIRES: begin < at, well-formed text.
inline const char* utf8_previous(const char* at) {
  do {
    --at;
  } while (is_continuation(*at));
  return at;
}

void append_utf8(std::string& text, char32_t point);

// Calls take(char32_t) for each character. REQUIRES: well-formed text.
template <class Take>
void for_each_point(std::string_view text, Take&& take) {
  for (std::size_t i = 0; i < text.size(); i += utf8_size(text[i])) take(utf8_point(&text[i]));
}

std::size_t count_points(std::string_view text);

// Bytes before the first one of 128 or more.
std::size_t ascii_prefix(std::string_view text);

// The text with U+FFFD in place of each maximal ill-formed part, as Python's errors="replace"
// decodes it.
std::string to_utf8(std::string_view bytes);

}  // namespace haul::tokenizers
