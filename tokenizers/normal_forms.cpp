#include "tokenizers/normal_forms.h"

#include <algorithm>

#include "tokenizers/unicode.h"
#include "tokenizers/utf8.h"

namespace haul::tokenizers {
namespace {

// Hangul syllables are arithmetic.
constexpr char32_t kSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161, kTails = 0x11A7;
constexpr char32_t kLeadCount = 19, kVowelCount = 21, kTailCount = 28;
constexpr char32_t kSyllableCount = kLeadCount * kVowelCount * kTailCount;

std::uint64_t pair_key(char32_t first, char32_t second) {
  return std::uint64_t{first} << 32 | second;
}

struct Part {
  std::uint8_t combining;
  Change change;
};

// Decomposes and puts marks into canonical order.
void decompose(bool compatible, std::string_view text, std::vector<Part>& parts) {
  const Decompositions& tables = Decompositions::get();
  const Unicode& properties = unicode();
  std::size_t pending = 0;  // marks from here on may still be reordered
  const auto by_class = [](const Part& a, const Part& b) { return a.combining < b.combining; };
  const auto settle = [&] {
    std::stable_sort(parts.begin() + static_cast<std::ptrdiff_t>(pending), parts.end(), by_class);
  };
  const auto push = [&](char32_t point, bool first) {
    const std::uint8_t combining = properties.combining[point];
    if (combining == 0 && parts.size() > pending) {
      if (parts.size() > pending + 1) settle();
      pending = parts.size();
    }
    parts.push_back({combining, {point, first ? 0 : 1}});
  };
  for_each_point(text, [&](char32_t point) {
    if (point >= kSyllables && point < kSyllables + kSyllableCount) {
      const char32_t index = point - kSyllables;
      push(kLeads + index / (kVowelCount * kTailCount), true);
      push(kVowels + index / kTailCount % kVowelCount, false);
      if (index % kTailCount != 0) push(kTails + index % kTailCount, false);
      return;
    }
    std::span<const std::uint32_t> mapping;
    if (point >= 0x80) {
      if (compatible) mapping = tables.compatible(point);
      if (mapping.empty()) mapping = tables.canonical(point);
    }
    if (mapping.empty()) {
      push(point, true);
    } else {
      for (std::size_t i = 0; i < mapping.size(); ++i) push(mapping[i], i == 0);
    }
  });
  settle();
}

void recompose(const std::vector<Part>& parts, std::vector<Change>& changes) {
  const Decompositions& tables = Decompositions::get();
  std::size_t starter = parts.size();  // index into changes; none yet
  bool has_starter = false;
  int last_class = -1;  // of the marks since the starter; -1: none
  for (const Part& part : parts) {
    if (has_starter && last_class < static_cast<int>(part.combining)) {
      Change& base = changes[starter];
      const char32_t composed = tables.compose(base.point, part.change.point);
      if (composed != 0) {
        base = {composed, base.change + part.change.change - 1};
        continue;
      }
    }
    if (part.combining == 0) {
      starter = changes.size();
      has_starter = true;
      last_class = -1;
    } else {
      last_class = part.combining;
    }
    changes.push_back(part.change);
  }
}

std::uint16_t unstable_bit(NormalForm form) {
  switch (form) {
    case NormalForm::kNfc:
      return kNotNfc;
    case NormalForm::kNfd:
      return kNotNfd;
    case NormalForm::kNfkc:
      return kNotNfkc;
    default:
      return kNotNfkd;
  }
}

}  // namespace

bool is_surely_normal(NormalForm form, std::string_view text) {
  const std::uint16_t bit = unstable_bit(form);
  const Unicode& properties = unicode();
  for (std::size_t i = ascii_prefix(text); i < text.size(); i += utf8_size(text[i])) {
    if (properties.is(utf8_point(&text[i]), bit)) return false;
  }
  return true;
}

void normalize(NormalForm form, std::string_view text, std::vector<Change>& changes) {
  std::vector<Part> parts;
  parts.reserve(text.size());
  decompose(form == NormalForm::kNfkc || form == NormalForm::kNfkd, text, parts);
  if (form == NormalForm::kNfc || form == NormalForm::kNfkc) {
    recompose(parts, changes);
  } else {
    for (const Part& part : parts) changes.push_back(part.change);
  }
}

const Decompositions& Decompositions::get() {
  static const Decompositions tables;
  return tables;
}

Decompositions::Decompositions() {
  const auto read = [](std::span<const std::uint32_t> data, auto&& take) {
    for (std::size_t i = 0; i < data.size();) {
      const std::uint32_t head = data[i];
      const std::size_t size = head & 127;
      take(head >> 8, (head & 128) != 0, data.subspan(i + 1, size));
      i += 1 + size;
    }
  };
  const auto text = [](std::span<const std::uint32_t> points) {
    return std::u32string(points.begin(), points.end());
  };
  std::unordered_map<std::u32string, char32_t> composed;
  read(canonical_data(), [&](char32_t point, bool composes, std::span<const std::uint32_t> to) {
    canonical_.emplace(point, to);
    if (!composes) return;
    composed.emplace(text(to), point);
    composed_.push_back(point);
  });
  for (const auto& [points, point] : composed) {
    const std::u32string front = points.substr(0, points.size() - 1);
    const auto prefix = composed.find(front);
    const char32_t first = front.size() == 1          ? front[0]
                           : prefix != composed.end() ? prefix->second
                                                      : 0;
    if (first != 0) compositions_.emplace(pair_key(first, points.back()), point);
  }
  read(compatible_data(), [&](char32_t point, bool, std::span<const std::uint32_t> to) {
    compatible_.emplace(point, to);
  });
}

std::span<const std::uint32_t> Decompositions::canonical(char32_t point) const {
  const auto found = canonical_.find(point);
  return found == canonical_.end() ? std::span<const std::uint32_t>{} : found->second;
}

std::span<const std::uint32_t> Decompositions::compatible(char32_t point) const {
  const auto found = compatible_.find(point);
  return found == compatible_.end() ? std::span<const std::uint32_t>{} : found->second;
}

char32_t Decompositions::compose(char32_t first, char32_t second) const {
  if (first >= kLeads && first < kLeads + kLeadCount && second >= kVowels &&
      second < kVowels + kVowelCount) {
    return kSyllables + ((first - kLeads) * kVowelCount + (second - kVowels)) * kTailCount;
  }
  if (first >= kSyllables && first < kSyllables + kSyllableCount &&
      (first - kSyllables) % kTailCount == 0 && second > kTails && second < kTails + kTailCount) {
    return first + (second - kTails);
  }
  const auto found = compositions_.find(pair_key(first, second));
  return found == compositions_.end() ? 0 : found->second;
}

void Decompositions::for_each_unstable(
    const std::function<void(char32_t, std::uint16_t)>& take) const {
  for (const auto& [point, to] : canonical_) {
    take(point, kNotNfd | kNotNfkd);
    if (!std::binary_search(composed_.begin(), composed_.end(), point)) {
      take(point, kNotNfc | kNotNfkc);
    }
  }
  for (const auto& [point, to] : compatible_) take(point, kNotNfkc | kNotNfkd);
  for (const auto& [pair, point] : compositions_) {
    take(static_cast<char32_t>(pair & 0xFFFFFFFF), kNotNfc | kNotNfkc);
  }
}

}  // namespace haul::tokenizers
