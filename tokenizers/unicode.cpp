#include "tokenizers/unicode.h"

#include <algorithm>
#include <span>
#include <utility>

#include "tokenizers/normal_forms.h"

namespace haul::tokenizers {
namespace {

#include "tokenizers/unicode_data.inc"

constexpr char32_t kEnd = 0x110000;

constexpr const char* kCategoryNames[kCategoryCount] = {
    "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
    "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};

template <class Table>
void set_ranges(Table& table, std::span<const std::uint32_t> edges, unsigned bits) {
  using T = decltype(table[0]);
  for (std::size_t i = 0; i + 1 < edges.size(); i += 2) {
    table.set(edges[i], edges[i + 1], static_cast<T>(bits));
  }
}

// Calls take(first, end, kind) for each range of a table of classes.
template <class Take>
void for_each_class(std::span<const std::uint32_t> starts, Take&& take) {
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const char32_t end = i + 1 < starts.size() ? starts[i + 1] >> 8 : kEnd;
    take(static_cast<char32_t>(starts[i] >> 8), end, static_cast<std::uint8_t>(starts[i] & 255));
  }
}

std::uint8_t scan_bits(Category category) {
  switch (category) {
    case Category::kLu:
    case Category::kLt:
      return kScanLetter | kScanUpper;
    case Category::kLl:
      return kScanLetter | kScanLower;
    case Category::kLm:
    case Category::kLo:
      return kScanLetter | kScanUpper | kScanLower;
    case Category::kMn:
    case Category::kMc:
    case Category::kMe:
      return kScanUpper | kScanLower;
    case Category::kNd:
    case Category::kNl:
    case Category::kNo:
      return kScanNumber;
    default:
      return 0;
  }
}

std::vector<std::pair<char32_t, char32_t>> lower_pairs() {
  std::vector<std::pair<char32_t, char32_t>> pairs;
  for (std::size_t i = 0; i + 2 < std::size(kLower); i += 3) {
    const std::uint32_t step = kLower[i + 2] >> 24;
    for (std::uint32_t c = kLower[i]; c <= kLower[i + 1]; c += step) {
      pairs.emplace_back(c, (c + kLower[i + 2]) & 0xFFFFFF);
    }
  }
  return pairs;
}

}  // namespace

template <class T>
void PointTable<T>::set(char32_t first, char32_t last, T bits) {
  while (first < last) {
    const char32_t end = std::min<char32_t>(last, (first | 255) + 1);
    std::uint32_t& block = blocks_[first >> 8];
    if (block == 0) {
      block = static_cast<std::uint32_t>(values_.size() >> 8);
      values_.resize(values_.size() + 256, T{});
    }
    for (char32_t c = first; c < end; ++c) {
      T& value = values_[block << 8 | (c & 255)];
      value = static_cast<T>(value | bits);
    }
    first = end;
  }
}

Unicode::Unicode() {
  for_each_class(kCategories, [&](char32_t first, char32_t end, std::uint8_t kind) {
    const std::uint8_t bits = scan_bits(static_cast<Category>(kind));
    if (bits != 0) scan.set(first, end, bits);
  });
  for_each_class(kCombining, [&](char32_t first, char32_t end, std::uint8_t kind) {
    if (kind != 0) combining.set(first, end, kind);
  });
  for_each_class(kLegacyScripts, [&](char32_t first, char32_t end, std::uint8_t kind) {
    if (kind != 0) scripts.set(first, end, kind);
  });
  for_each_class(kBreaks, [&](char32_t first, char32_t end, std::uint8_t kind) {
    if (kind != 0) breaks.set(first, end, kind);
  });
  set_ranges(scan, kPatternSpace, kScanSpace);
  set_ranges(scan, kNumeric, kScanDigit);
  scan.set('\n', '\n' + 1, kScanNewline);
  scan.set('\r', '\r' + 1, kScanNewline);
  set_ranges(flags, kSpace, kIsSpace);
  set_ranges(flags, kNumeric, kIsNumeric);
  set_ranges(flags, kPunctuation, kIsPunctuation);
  set_ranges(flags, kWord, kIsWord);
  set_ranges(flags, kUnclean, kIsUnclean);
  set_ranges(flags, kNonspacing, kIsNonspacing);
  set_ranges(flags, kAccent, kIsAccent);
  const Decompositions& decompositions = Decompositions::get();
  decompositions.for_each_unstable(
      [&](char32_t point, std::uint16_t bits) { flags.set(point, point + 1, bits); });
  // A mark may be reordered or composed; a Hangul syllable decomposes.
  for_each_class(kCombining, [&](char32_t first, char32_t end, std::uint8_t kind) {
    if (kind != 0) flags.set(first, end, kNotNfc | kNotNfkc | kNotNfd | kNotNfkd);
  });
  flags.set(0xAC00, 0xAC00 + 11172, kNotNfd | kNotNfkd);
  flags.set(0x1161, 0x1176, kNotNfc | kNotNfkc);
  flags.set(0x11A8, 0x11C3, kNotNfc | kNotNfkc);
}

const Unicode& unicode() {
  static const Unicode tables;
  return tables;
}

char32_t to_lower(char32_t point) {
  if (point < 0x80) return point >= 'A' && point <= 'Z' ? point + 32 : point;
  if (point == kDottedCapitalI) return 'i';
  static const PointTable<std::uint32_t> table = [] {
    PointTable<std::uint32_t> lower;
    for (const auto& [upper, small] : lower_pairs()) lower.set(upper, upper + 1, small);
    return lower;
  }();
  const char32_t lower = table[point];
  return lower == 0 ? point : lower;
}

std::span<const std::uint32_t> canonical_data() {
  return kCanonical;
}

std::span<const std::uint32_t> compatible_data() {
  return kCompatible;
}

std::vector<std::uint32_t> pattern_ranges(std::string_view name) {
  const auto list = [](std::span<const std::uint32_t> edges) {
    return std::vector<std::uint32_t>(edges.begin(), edges.end());
  };
  if (name == "Space") return list(kPatternSpace);
  if (name == "Word") return list(kPatternWord);
  if (name == "Han") return list(kScriptHan);
  if (name == "Hiragana") return list(kScriptHiragana);
  if (name == "Katakana") return list(kScriptKatakana);
  if (name == "Hangul") return list(kScriptHangul);
  if (name == "Latin") return list(kScriptLatin);
  if (name == "Greek") return list(kScriptGreek);
  if (name == "Cyrillic") return list(kScriptCyrillic);
  if (name == "Arabic") return list(kScriptArabic);
  if (name == "Hebrew") return list(kScriptHebrew);
  if (name == "Thai") return list(kScriptThai);
  std::vector<std::uint32_t> ranges;
  if (name.empty() || name.size() > 2) return ranges;
  const auto take = [&](char32_t first, char32_t end, std::uint8_t kind) {
    if (!std::string_view(kCategoryNames[kind]).starts_with(name)) return;
    if (!ranges.empty() && ranges.back() == first) {
      ranges.back() = end;
    } else {
      ranges.insert(ranges.end(), {first, end});
    }
  };
  // The table begins with the first range that is assigned, U+0000.
  for_each_class(kCategories, take);
  return ranges;
}

}  // namespace haul::tokenizers
