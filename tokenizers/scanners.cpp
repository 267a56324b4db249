#include "tokenizers/scanners.h"

#include <array>
#include <utility>

#include "tokenizers/pre_tokenizer.h"

namespace haul::tokenizers {
namespace {

constexpr std::string_view kCl100kPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kClipPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+)";

}  // namespace

std::optional<Scanner> find_scanner(std::string_view pattern) {
  for (const Scanner scanner :
       {Scanner::kGpt2, Scanner::kCl100k, Scanner::kQwen2, Scanner::kO200k, Scanner::kClip}) {
    if (pattern == pattern_of(scanner)) return scanner;
  }
  return std::nullopt;
}

std::string_view pattern_of(Scanner scanner) {
  switch (scanner) {
    case Scanner::kCl100k:
      return kCl100kPattern;
    case Scanner::kQwen2:
      return kQwen2Pattern;
    case Scanner::kO200k:
      return kO200kPattern;
    case Scanner::kClip:
      return kClipPattern;
    default:
      return kGpt2Pattern;
  }
}

const std::uint8_t* scanning::byte_classes() {
  static const std::array<std::uint8_t, 256> table = [] {
    std::array<std::uint8_t, 256> classes{};
    for (std::size_t c = 0; c < 256; ++c) {
      classes[c] = c < 128 ? unicode().scan[static_cast<char32_t>(c)] : kWide;
    }
    return classes;
  }();
  return table.data();
}

}  // namespace haul::tokenizers
