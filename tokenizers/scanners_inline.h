#pragma once

// The loops of scanners.h.

#include <bit>
#include <cstdint>
#include <cstring>

#include "tokenizers/scanners.h"
#include "tokenizers/unicode.h"
#include "tokenizers/utf8.h"

namespace haul::tokenizers::scanning {

// Bits of an ASCII character, and kWide for the first byte of any other.
inline constexpr std::uint8_t kWide = 128;
const std::uint8_t* byte_classes();

// The high bit of each of eight bytes that is no ASCII letter.
inline std::uint64_t not_ascii_letters(std::uint64_t bytes) {
  constexpr std::uint64_t kOnes = 0x0101010101010101, kHigh = kOnes * 0x80;
  const std::uint64_t low = (bytes | kOnes * 0x20) & ~kHigh;
  const std::uint64_t from_a = low + kOnes * (0x80 - 'a');
  const std::uint64_t after_z = low + kOnes * (0x7F - 'z');
  return (~(from_a ^ after_z) | bytes) & kHigh;
}

// Looks at well-formed text up to its end.
class Cursor {
 public:
  Cursor(const char* end, const Unicode& properties)
      : end_(end), classes_(byte_classes()), properties_(properties) {}

  // The class of the character at p, and its size. REQUIRES: p < end.
  std::uint8_t look(const char* p, std::size_t& size) const {
    const std::uint8_t bits = classes_[static_cast<unsigned char>(*p)];
    if (bits != kWide) {
      size = 1;
      return bits;
    }
    size = utf8_size(*p);
    return properties_.scan[utf8_point(p)];
  }
  std::uint8_t look(const char* p) const {
    std::size_t size;
    return look(p, size);
  }
  // Past all characters that have one of the bits.
  const char* skip(const char* p, std::uint8_t bits) const {
    while (p < end_) {
      const std::uint8_t kind = classes_[static_cast<unsigned char>(*p)];
      if (kind == kWide) {
        if ((properties_.scan[utf8_point(p)] & bits) == 0) break;
        p += utf8_size(*p);
      } else {
        if ((kind & bits) == 0) break;
        ++p;
      }
    }
    return p;
  }
  const char* skip_letters(const char* p) const {
    // Eight at a time while they are ASCII.
    while (end_ - p >= 8) {
      std::uint64_t bytes;
      std::memcpy(&bytes, p, 8);
      const std::uint64_t others = not_ascii_letters(bytes);
      if (others != 0) {
        p += std::countr_zero(others) >> 3;
        if (static_cast<unsigned char>(*p) < 0x80) return p;
        break;
      }
      p += 8;
    }
    return skip(p, kScanLetter);
  }
  // Past all characters that have none of the bits.
  const char* skip_until(const char* p, std::uint8_t bits) const {
    std::size_t size;
    while (p < end_ && (look(p, size) & bits) == 0) p += size;
    return p;
  }
  const char* end() const { return end_; }

 private:
  const char* end_;
  const std::uint8_t* classes_;
  const Unicode& properties_;
};

// Bytes of 's, 't, 're, 've, 'm, 'll or 'd at p, or 0. Without case U+017F is an s as well.
template <bool kIgnoreCase>
std::size_t contraction(const char* p, const char* end) {
  if (end - p < 2 || *p != '\'') return 0;
  const auto low = [](char c) {
    return kIgnoreCase && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  const char first = low(p[1]);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (end - p < 3) return 0;
  if (kIgnoreCase && p[1] == '\xC5' && p[2] == '\xBF') return 3;
  const char second = low(p[2]);
  const bool two = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
                   (first == 'l' && second == 'l');
  return two ? 3 : 0;
}

// \s+(?!\S)|\s+ : a run of spaces, without its last one when something follows.
inline const char* space_run(const Cursor& cursor, const char* begin) {
  const char* end = cursor.skip(begin, kScanSpace);
  if (end == cursor.end()) return end;
  const char* last = utf8_previous(end);
  return last == begin ? end : last;
}

inline constexpr std::uint8_t kNotOther = kScanLetter | kScanNumber | kScanSpace;

// Where a piece ends that begins with a character of this kind, the next one being `after`.
inline const char* gpt2_end(const Cursor& cursor, const char* begin, std::uint8_t kind,
                            const char* after) {
  if (const std::size_t size = contraction<false>(begin, cursor.end()); size != 0) {
    return begin + size;
  }
  const char* body = begin;
  if (*begin == ' ' && after < cursor.end()) {
    const std::uint8_t next = cursor.look(after);
    if ((next & kScanSpace) == 0) {
      kind = next;
      body = after;
    }
  }
  if (kind & kScanLetter) return cursor.skip_letters(body);
  if (kind & kScanNumber) return cursor.skip(body, kScanNumber);
  if (kind & kScanSpace) return space_run(cursor, begin);
  return cursor.skip_until(body, kNotOther);
}

// \s*[\r\n]+|\s+(?!\S)|\s+
inline const char* space_or_lines(const Cursor& cursor, const char* begin) {
  const char* end = cursor.skip(begin, kScanSpace);
  for (const char* p = end; p > begin;) {
    p = utf8_previous(p);
    if (*p == '\n' || *p == '\r') return p + 1;
  }
  return space_run(cursor, begin);
}

inline const char* limited_digits(const Cursor& cursor, const char* p, int limit) {
  for (int i = 0; i < limit && p < cursor.end(); ++i) {
    std::size_t size;
    if ((cursor.look(p, size) & kScanNumber) == 0) break;
    p += size;
  }
  return p;
}

// ?[^\s\p{L}\p{N}]+ begins with a character of this kind.
inline bool begins_others(const char* begin, std::uint8_t kind, std::uint8_t next) {
  return (kind & kScanSpace) == 0 || (*begin == ' ' && (next & kNotOther) == 0);
}

template <int kDigits>
const char* cl100k_end(const Cursor& cursor, const char* begin, std::uint8_t kind,
                       const char* after) {
  if (kind & kScanLetter) return cursor.skip_letters(after);
  if (const std::size_t size = contraction<true>(begin, cursor.end()); size != 0) {
    return begin + size;
  }
  const std::uint8_t next = after < cursor.end() ? cursor.look(after) : kScanSpace;
  if ((next & kScanLetter) && (kind & (kScanNumber | kScanNewline)) == 0) {
    return cursor.skip_letters(after);
  }
  if (kind & kScanNumber) return limited_digits(cursor, begin, kDigits);
  if (begins_others(begin, kind, next)) {
    return cursor.skip(cursor.skip_until(after, kNotOther), kScanNewline);
  }
  return space_or_lines(cursor, begin);
}

// [upper]*[lower]+ at p or, failing that, [upper]+[lower]*.
struct CasedWord {
  const char* end;
  bool has_lower;  // matched by the first
};
inline CasedWord cased_word(const Cursor& cursor, const char* p) {
  const char* const upper = cursor.skip(p, kScanUpper);
  const char* const lower = cursor.skip(upper, kScanLower);
  if (lower > upper) return {lower, true};
  // The last character of the run that also counts as lower ends the word.
  for (const char* end = upper; end > p;) {
    const char* last = utf8_previous(end);
    if (cursor.look(last) & kScanLower) return {end, true};
    end = last;
  }
  return {upper, false};
}

inline const char* o200k_end(const Cursor& cursor, const char* begin, std::uint8_t kind,
                             const char* after) {
  constexpr std::uint8_t kWord = kScanUpper | kScanLower;
  const std::uint8_t next = after < cursor.end() ? cursor.look(after) : kScanSpace;
  const bool leads =
      (kind & (kScanLetter | kScanNumber | kScanNewline)) == 0 && (next & kWord) != 0;
  if ((kind & kWord) || leads) {
    CasedWord word{begin, false};
    if (leads) word = cased_word(cursor, after);
    // A mark can lead the word or be part of it.
    if (!word.has_lower && (kind & kWord)) word = cased_word(cursor, begin);
    return word.end + contraction<true>(word.end, cursor.end());
  }
  if (kind & kScanNumber) return limited_digits(cursor, begin, 3);
  if (!begins_others(begin, kind, next)) return space_or_lines(cursor, begin);
  const char* stop = cursor.skip_until(after, kNotOther);
  while (stop < cursor.end() && (*stop == '\r' || *stop == '\n' || *stop == '/')) ++stop;
  return stop;
}

// A space is a piece here, and no match of the pattern.
inline const char* clip_end(const Cursor& cursor, const char* begin, std::uint8_t kind,
                            const char* after) {
  if (const std::size_t size = contraction<false>(begin, cursor.end()); size != 0) {
    return begin + size;
  }
  if (kind & kScanLetter) return cursor.skip_letters(begin);
  if (kind & (kScanSpace | kScanNumber)) return after;
  return cursor.skip_until(begin, kNotOther);
}

// Calls take for each piece, of which find_end tells the ends.
template <class FindEnd, class Take>
void split(std::string_view text, const Unicode& properties, FindEnd&& find_end, Take&& take) {
  const Cursor cursor(text.data() + text.size(), properties);
  for (const char* begin = text.data(); begin < cursor.end();) {
    std::size_t size;
    const std::uint8_t kind = cursor.look(begin, size);
    const char* const stop = find_end(cursor, begin, kind, begin + size);
    take(begin, stop);
    begin = stop;
  }
}

template <class Take>
void clip(std::string_view text, const Unicode& properties, Take&& take) {
  const Cursor cursor(text.data() + text.size(), properties);
  split(text, properties, clip_end, [&](const char* begin, const char* end) {
    if ((cursor.look(begin) & kScanSpace) == 0) take(begin, end);
  });
}

// Digits one by one between parts that gpt2 splits on their own.
template <class Take>
void gpt2_digits(std::string_view text, const Unicode& properties, Take&& take) {
  const Cursor cursor(text.data() + text.size(), properties);
  for (const char* begin = text.data(); begin < cursor.end();) {
    const char* const digit = cursor.skip_until(begin, kScanDigit);
    split({begin, static_cast<std::size_t>(digit - begin)}, properties, gpt2_end, take);
    begin = digit;
    if (digit == cursor.end()) break;
    begin += utf8_size(*digit);
    take(digit, begin);
  }
}

}  // namespace haul::tokenizers::scanning

template <class Take>
void haul::tokenizers::scan(Scanner scanner, std::string_view text, Take&& take) {
  const Unicode& properties = unicode();
  switch (scanner) {
    case Scanner::kGpt2:
      return scanning::split(text, properties, scanning::gpt2_end, take);
    case Scanner::kGpt2Digits:
      return scanning::gpt2_digits(text, properties, take);
    case Scanner::kCl100k:
      return scanning::split(text, properties, scanning::cl100k_end<3>, take);
    case Scanner::kQwen2:
      return scanning::split(text, properties, scanning::cl100k_end<1>, take);
    case Scanner::kO200k:
      return scanning::split(text, properties, scanning::o200k_end, take);
    case Scanner::kClip:
      return scanning::clip(text, properties, take);
  }
}
