#pragma once

// A template's source as tokens, with the settings of chat templates: a newline after a block tag
// goes away, and so does white space before one that stands first on its line.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace haul::tokenizers::jinja {

enum class TokenKind : std::uint8_t {
  kData,
  kBlockBegin,
  kBlockEnd,
  kPrintBegin,
  kPrintEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string text;  // of a string: what it means
  std::int64_t integer = 0;
  double real = 0;
};

// Throws Error(kCorrupt) that says "line N: …". REQUIRES: well-formed UTF-8.
std::vector<Token> lex(std::string_view source);

}  // namespace haul::tokenizers::jinja
