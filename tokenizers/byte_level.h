#pragma once

// GPT-2's alphabet: each byte as a printable character.

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace haul::tokenizers {

// U+0100 + n for the n-th byte that is not printable, itself otherwise; all below U+0180.
const std::array<char32_t, 256>& byte_to_point();

// The byte that the character stands for.
std::optional<unsigned char> point_to_byte(char32_t point);

// Appends the characters of the bytes.
void append_byte_level(std::string_view bytes, std::string& out);

}  // namespace haul::tokenizers
