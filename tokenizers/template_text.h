#pragma once

// Python's str methods on well-formed UTF-8: positions count characters. Pure; from any thread.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/template_budget.h"

namespace haul::tokenizers::jinja {

bool is_printable(char32_t point);
// Python's: Unicode's white space and four separators of ASCII.
bool is_white(char32_t point);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
// First character in title case, the rest lower.
std::string capitalize(std::string_view text);
// Every letter after something that is no letter in title case.
std::string title(std::string_view text);
// What the filter does: words begin after white space, dashes and opening brackets.
std::string title_words(std::string_view text);
std::string swapcase(std::string_view text);

enum class Side { kLeft, kRight, kBoth };
// White space when `characters` is nothing.
std::string_view strip(std::string_view text, std::optional<std::string_view> characters,
                       Side side);

// At most `limit` cuts, from the left or from the right; any number when negative.
// REQUIRES: separator not empty.
std::vector<std::string_view> split(std::string_view text, std::string_view separator,
                                    std::int64_t limit, bool from_right);
std::vector<std::string_view> split_white(std::string_view text, std::int64_t limit,
                                          bool from_right);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

std::string replace(std::string_view text, std::string_view old, std::string_view with,
                    std::int64_t limit, Budget& budget);
std::size_t count(std::string_view text, std::string_view part);

// Kinds of text, as isalpha() and its like tell them.
bool is_alpha(char32_t point);
bool is_digit(char32_t point);
bool is_numeric(char32_t point);
bool is_word(char32_t point);
bool is_lower(std::string_view text);
bool is_upper(std::string_view text);
std::size_t count_words(std::string_view text);

// Characters [first, last) of the text. REQUIRES: first <= last <= its length.
std::string_view characters(std::string_view text, std::size_t first, std::size_t last);

}  // namespace haul::tokenizers::jinja
