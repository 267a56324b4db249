#include "tokenizers/template_lexer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "haul/error.h"
#include "tokenizers/template_text.h"
#include "tokenizers/utf8.h"

namespace haul::tokenizers::jinja {
namespace {

// The source with \n for every newline, and without the last one.
std::string normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else if (i + 1 == source.size() || source[i + 1] != '\n') {
      out += '\n';
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(normalize(source)) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) data();
    add(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorKind::kCorrupt, fmt::format("line {}: {}", line_, what));
  }

  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool starts(std::string_view part) const {
    return std::string_view(text_).substr(at_).starts_with(part);
  }
  void advance(std::size_t count) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(at_ + count),
                                         '\n'));
    at_ += count;
  }
  void skip_white() {
    std::size_t end = at_;
    while (end < text_.size() && is_white(utf8_point(&text_[end]))) end += utf8_size(text_[end]);
    advance(end - at_);
  }

  Token& add(TokenKind kind, std::string text = {}) {
    Token token;
    token.kind = kind;
    token.line = line_;
    token.text = std::move(text);
    tokens_.push_back(std::move(token));
    return tokens_.back();
  }

  // Text up to the next tag, and the tag.
  void data() {
    const std::size_t begin = at_;
    std::size_t tag = at_;
    while ((tag = text_.find('{', tag)) != text_.npos && tag + 1 < text_.size() &&
           text_[tag + 1] != '{' && text_[tag + 1] != '%' && text_[tag + 1] != '#') {
      ++tag;
    }
    if (tag == text_.npos || tag + 1 >= text_.size()) {
      add(TokenKind::kData, text_.substr(begin));
      at_ = text_.size();
      return;
    }
    const char kind = text_[tag + 1];
    const char sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
    add_data(text_.substr(begin, tag - begin), sign, kind != '{');
    advance(tag - at_);
    if (kind == '#') {
      comment();
    } else if (kind == '{') {
      add(TokenKind::kPrintBegin);
      advance(sign == '-' || sign == '+' ? 3 : 2);
      code(true);
    } else if (!raw()) {
      add(TokenKind::kBlockBegin);
      advance(sign == '-' || sign == '+' ? 3 : 2);
      code(false);
    }
  }

  void add_data(std::string_view piece, char sign, bool strips_line) {
    if (sign == '-') {
      piece = strip(piece, std::nullopt, Side::kRight);
    } else if (sign != '+' && strips_line) {
      const std::size_t newline = piece.rfind('\n');
      const std::size_t start = newline == piece.npos ? 0 : newline + 1;
      if ((start > 0 || line_starts_) &&
          strip(piece.substr(start), std::nullopt, Side::kRight).empty()) {
        piece = piece.substr(0, start);
      }
    }
    if (!piece.empty()) add(TokenKind::kData, std::string(piece));
  }

  // Past the end of a tag, with what its sign and the newline rule take along.
  void leave(std::size_t size, bool white, bool newline) {
    const std::size_t before = at_;
    advance(size);
    if (white) skip_white();
    if (newline && peek() == '\n') advance(1);
    line_starts_ = at_ > before && text_[at_ - 1] == '\n';
  }

  void comment() {
    const std::size_t begin = at_ + (peek(2) == '-' || peek(2) == '+' ? 3 : 2);
    const std::size_t end = text_.find("#}", begin);
    if (end == text_.npos) refuse("a comment has no end");
    const char sign = text_[end - 1];
    const bool own = end > begin;  // the sign is not that of the beginning
    advance(end - at_);
    leave(2, own && sign == '-', !(own && (sign == '-' || sign == '+')));
  }

  // A word of a raw block's tag at `at`: {%- raw -%}. Gives the size of the tag, 0 if it is none.
  std::size_t raw_tag(std::size_t at, std::string_view word, char& begin_sign,
                      char& end_sign) const {
    const auto skip = [&](std::size_t i) {
      while (i < text_.size() && is_white(utf8_point(&text_[i]))) i += utf8_size(text_[i]);
      return i;
    };
    std::size_t i = at + 2;
    begin_sign = i < text_.size() && (text_[i] == '-' || text_[i] == '+') ? text_[i++] : '\0';
    i = skip(i);
    if (text_.compare(i, word.size(), word) != 0) return 0;
    i = skip(i + word.size());
    end_sign = i < text_.size() && (text_[i] == '-' || text_[i] == '+') ? text_[i++] : '\0';
    return text_.compare(i, 2, "%}") == 0 ? i + 2 - at : 0;
  }

  bool raw() {
    char begin_sign = 0;
    char end_sign = 0;
    const std::size_t size = raw_tag(at_, "raw", begin_sign, end_sign);
    if (size == 0 || end_sign == '+') return false;
    leave(size, end_sign == '-', false);
    for (std::size_t end = at_; (end = text_.find("{%", end)) != text_.npos; end += 2) {
      const std::size_t closing = raw_tag(end, "endraw", begin_sign, end_sign);
      if (closing == 0) continue;
      add_data(std::string_view(text_).substr(at_, end - at_), begin_sign, true);
      advance(end - at_);
      leave(closing, end_sign == '-', end_sign == '\0');
      return true;
    }
    refuse("a raw block has no end");
  }

  // Whether the tag ends here; goes past its end then.
  bool closes(bool print) {
    const std::string_view end = print ? "}}" : "%}";
    if (starts(end)) {
      add(print ? TokenKind::kPrintEnd : TokenKind::kBlockEnd);
      leave(2, false, !print);
      return true;
    }
    const char sign = peek();
    const bool signs = sign == '-' || (sign == '+' && !print);
    if (!signs || !std::string_view(text_).substr(at_ + 1).starts_with(end)) return false;
    add(print ? TokenKind::kPrintEnd : TokenKind::kBlockEnd);
    leave(3, sign == '-', false);
    return true;
  }

  void code(bool print) {
    std::string open;
    for (;;) {
      skip_white();
      if (open.empty() && closes(print)) return;
      if (at_ >= text_.size()) {
        return;  // the parser says what is missing
      }
      const char c = peek();
      const auto byte = static_cast<unsigned char>(c);
      if (std::isdigit(byte)) {
        number();
      } else if (std::isalpha(byte) || c == '_' || byte >= 0x80) {
        name();
      } else if (c == '\'' || c == '"') {
        string();
      } else {
        symbol(open);
      }
    }
  }

  void name() {
    std::size_t end = at_;
    while (end < text_.size()) {
      const char32_t point = utf8_point(&text_[end]);
      if (!is_word(point)) break;
      end += utf8_size(text_[end]);
    }
    if (end == at_)
      refuse(fmt::format("unexpected character '{}'", text_.substr(at_, utf8_size(text_[at_]))));
    add(TokenKind::kName, text_.substr(at_, end - at_));
    at_ = end;
  }

  void number() {
    std::string digits;
    std::size_t end = at_;
    const auto take = [&](auto&& allowed) {
      while (end < text_.size()) {
        const bool separates =
            text_[end] == '_' && end + 1 < text_.size() && allowed(text_[end + 1]);
        if (!separates && !allowed(text_[end])) break;
        if (!separates) digits += text_[end];
        ++end;
      }
    };
    const auto decimal = [](char c) { return c >= '0' && c <= '9'; };
    const char mark = static_cast<char>(std::tolower(static_cast<unsigned char>(peek(1))));
    const int base = peek() != '0' ? 10 : mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
    if (base != 10) {
      end += 2;
      take([base](char c) {
        const int low = std::tolower(static_cast<unsigned char>(c));
        return c != '\0' && (base == 16 ? std::isxdigit(static_cast<unsigned char>(c)) != 0
                                        : low >= '0' && low < '0' + base);
      });
      integer(digits, base, end);
      return;
    }
    take(decimal);
    bool real = false;
    const bool after_dot = at_ > 0 && text_[at_ - 1] == '.';
    if (!after_dot && end + 1 < text_.size() && text_[end] == '.' && decimal(text_[end + 1])) {
      real = true;
      digits += text_[end++];
      take(decimal);
    }
    const std::size_t sign =
        end + 1 < text_.size() && (text_[end + 1] == '+' || text_[end + 1] == '-');
    if (!after_dot && end < text_.size() && (text_[end] == 'e' || text_[end] == 'E') &&
        end + 1 + sign < text_.size() && decimal(text_[end + 1 + sign])) {
      real = true;
      digits += 'e';
      if (sign != 0) digits += text_[end + 1];
      end += 1 + sign;
      take(decimal);
    }
    if (!real) {
      if (digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of('0') != digits.npos) {
        refuse(fmt::format("'{}' is no number", digits));
      }
      integer(digits, 10, end);
      return;
    }
    Token& token = add(TokenKind::kFloat, digits);
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), token.real);
    if (result.ec == std::errc::result_out_of_range) {
      token.real = digits.find("e-") != digits.npos ? 0.0 : HUGE_VAL;
    }
    at_ = end;
  }

  void integer(const std::string& digits, int base, std::size_t end) {
    Token& token = add(TokenKind::kInteger, digits);
    const auto result =
        std::from_chars(digits.data(), digits.data() + digits.size(), token.integer, base);
    if (result.ec != std::errc{}) refuse("a number that is no 64-bit integer");
    at_ = end;
  }

  void string() {
    const char quote = peek();
    std::size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) refuse("a string has no end");
    add(TokenKind::kString, unescape(std::string_view(text_).substr(at_ + 1, end - at_ - 1)));
    advance(end + 1 - at_);
  }

  std::string unescape(std::string_view text) const {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        out += text[i];
        continue;
      }
      const char c = text[++i];
      static constexpr std::string_view kFrom = "\\'\"abfnrtv";
      static constexpr std::string_view kTo = "\\'\"\a\b\f\n\r\t\v";
      if (const std::size_t found = kFrom.find(c); found != kFrom.npos) {
        out += kTo[found];
      } else if (c == '\n') {
        continue;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        append_point(out, text.substr(i + 1, digits), 16, digits);
        i += digits;
      } else if (c >= '0' && c <= '7') {
        std::size_t digits = 1;
        while (digits < 3 && i + digits < text.size() && text[i + digits] >= '0' &&
               text[i + digits] <= '7') {
          ++digits;
        }
        append_point(out, text.substr(i, digits), 8, digits);
        i += digits - 1;
      } else if (c == 'N') {
        refuse("characters by name (\\N) are not supported");
      } else {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  void append_point(std::string& out, std::string_view digits, int base, std::size_t count) const {
    std::uint32_t point = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), point, base);
    if (digits.size() != count || result.ptr != digits.data() + digits.size() ||
        result.ec != std::errc{} || point > 0x10FFFF) {
      refuse("a string has a broken escape");
    }
    if (point >= 0xD800 && point < 0xE000) refuse("a string has half a character (a surrogate)");
    append_utf8(out, point);
  }

  void symbol(std::string& open) {
    static constexpr std::array<std::string_view, 26> kSymbols = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (const std::string_view symbol : kSymbols) {
      if (!starts(symbol)) continue;
      const char c = symbol[0];
      if (c == '(' || c == '[' || c == '{') {
        open += c == '(' ? ')' : c == '[' ? ']' : '}';
      } else if (c == ')' || c == ']' || c == '}') {
        if (open.empty()) refuse(fmt::format("unexpected '{}'", c));
        if (open.back() != c) refuse(fmt::format("unexpected '{}', expected '{}'", c, open.back()));
        open.pop_back();
      }
      add(TokenKind::kOperator, std::string(symbol));
      at_ += symbol.size();
      return;
    }
    refuse(fmt::format("unexpected character '{}'", peek()));
  }

  std::string text_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> lex(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace haul::tokenizers::jinja
