#pragma once

// What the pinned peer believes about code points (unicode_data.inc, generated), as tables with
// one lookup each. Built on first use; immutable, so from any thread.

#include <cstdint>
#include <string_view>
#include <vector>

namespace haul::tokenizers {

// A value for each code point, in blocks that are shared where they are equal.
template <class T>
class PointTable {
 public:
  T operator[](char32_t point) const {
    return point < 0x110000 ? values_[blocks_[point >> 8] << 8 | (point & 255)] : T{};
  }
  // Sets [first, last).
  void set(char32_t first, char32_t last, T bits);

 private:
  std::vector<std::uint32_t> blocks_ = std::vector<std::uint32_t>(0x1100, 0);
  std::vector<T> values_ = std::vector<T>(256, T{});
};

enum class Category : std::uint8_t {
  kCn,
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCs,
  kCo,
};
inline constexpr int kCategoryCount = 30;

// Bits of Unicode::flags.
inline constexpr std::uint16_t kIsSpace = 1;        // whitespace
inline constexpr std::uint16_t kIsNumeric = 2;      // Digits isolates it
inline constexpr std::uint16_t kIsPunctuation = 4;  // Punctuation isolates it
inline constexpr std::uint16_t kIsWord = 8;         // \w of added tokens and of Whitespace
inline constexpr std::uint16_t kIsUnclean = 16;     // Bert's clean_text removes it
inline constexpr std::uint16_t kIsNonspacing = 32;  // Bert's strip_accents removes it
inline constexpr std::uint16_t kIsAccent = 64;      // StripAccents removes it
inline constexpr std::uint16_t kNotNfc = 128;       // can change under NFC
inline constexpr std::uint16_t kNotNfkc = 256;      // can change under NFKC
inline constexpr std::uint16_t kNotNfd = 512;       // can change under NFD
inline constexpr std::uint16_t kNotNfkd = 1024;     // can change under NFKD

// Bits of Unicode::scan, for the hand-written scanners of patterns.
inline constexpr std::uint8_t kScanLetter = 1;   // \p{L}
inline constexpr std::uint8_t kScanNumber = 2;   // \p{N}
inline constexpr std::uint8_t kScanSpace = 4;    // \s
inline constexpr std::uint8_t kScanNewline = 8;  // [\r\n]
inline constexpr std::uint8_t kScanUpper = 16;   // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
inline constexpr std::uint8_t kScanLower = 32;   // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
inline constexpr std::uint8_t kScanDigit = 64;   // Digits isolates it

// Values of Unicode::breaks, low four bits.
enum class GraphemeBreak : std::uint8_t {
  kOther,
  kCr,
  kLf,
  kControl,
  kExtend,
  kZwj,
  kRegional,
  kPrepend,
  kSpacing,
  kL,
  kV,
  kT,
  kLv,
  kLvt,
};
// High bits of Unicode::breaks.
inline constexpr int kPictograph = 1;
inline constexpr int kLinker = 2;
inline constexpr int kConsonant = 3;
inline constexpr int kJoiner = 4;

struct Unicode {
  PointTable<std::uint16_t> flags;
  PointTable<std::uint8_t> scan;
  PointTable<std::uint8_t> combining;  // 0: a starter; otherwise in the classes' order
  PointTable<std::uint8_t> scripts;    // of the UnicodeScripts pre-tokenizer; 0: any
  PointTable<std::uint8_t> breaks;

  bool is(char32_t point, std::uint16_t flag) const { return (flags[point] & flag) != 0; }

  Unicode();
};

const Unicode& unicode();

inline bool is_space(char32_t point) {
  return unicode().is(point, kIsSpace);
}

// Lowercase of one character; U+0130 gives two, of which this is the first.
char32_t to_lower(char32_t point);
inline constexpr char32_t kDottedCapitalI = 0x130;
inline constexpr char32_t kCombiningDotAbove = 0x307;

// What a name means in patterns: "Space" and "Word" for \s and \w, a general category or a group of
// them ("Lu", "L"), or a script that real patterns name ("Han", …). First and one past the last of
// each range; empty when unknown.
std::vector<std::uint32_t> pattern_ranges(std::string_view name);

}  // namespace haul::tokenizers
