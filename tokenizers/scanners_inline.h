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

class Cursor {
 public:
  Cursor(const char* at, const char* end, const Unicode& properties)
      : at_(at), end_(end), classes_(byte_classes()), properties_(properties) {}

  const char* at() const { return at_; }
  bool done() const { return at_ == end_; }
  void move_to(const char* at) { at_ = at; }

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
  const char* at_;
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

template <class Take>
void gpt2(std::string_view text, const Unicode& properties, Take&& take) {
  constexpr std::uint8_t kNotOther = kScanLetter | kScanNumber | kScanSpace;
  Cursor cursor(text.data(), text.data() + text.size(), properties);
  const char* const end = cursor.end();
  while (!cursor.done()) {
    const char* const begin = cursor.at();
    const char* stop;
    std::size_t size;
    std::uint8_t kind = cursor.look(begin, size);
    if (const std::size_t short_form = contraction<false>(begin, end); short_form != 0) {
      stop = begin + short_form;
    } else {
      const char* body = begin;
      if (*begin == ' ' && begin + 1 < end) {
        const std::uint8_t next = cursor.look(begin + 1);
        if ((next & kScanSpace) == 0) {
          kind = next;
          body = begin + 1;
        }
      }
      if (kind & kScanLetter) {
        stop = cursor.skip_letters(body);
      } else if (kind & kScanNumber) {
        stop = cursor.skip(body, kScanNumber);
      } else if (kind & kScanSpace) {
        stop = space_run(cursor, begin);
      } else {
        stop = cursor.skip_until(body, kNotOther);
      }
    }
    take(begin, stop);
    cursor.move_to(stop);
  }
}

// Digits one by one between parts that gpt2 splits on their own.
template <class Take>
void gpt2_digits(std::string_view text, const Unicode& properties, Take&& take) {
  Cursor cursor(text.data(), text.data() + text.size(), properties);
  while (!cursor.done()) {
    const char* const begin = cursor.at();
    const char* digit = cursor.skip_until(begin, kScanDigit);
    if (digit > begin) {
      gpt2({begin, static_cast<std::size_t>(digit - begin)}, properties, take);
    }
    while (digit < cursor.end()) {
      std::size_t size;
      if ((cursor.look(digit, size) & kScanDigit) == 0) break;
      take(digit, digit + size);
      digit += size;
    }
    cursor.move_to(digit);
  }
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

template <int kDigits, class Take>
void cl100k(std::string_view text, const Unicode& properties, Take&& take) {
  constexpr std::uint8_t kNotOther = kScanLetter | kScanNumber | kScanSpace;
  Cursor cursor(text.data(), text.data() + text.size(), properties);
  const char* const end = cursor.end();
  while (!cursor.done()) {
    const char* const begin = cursor.at();
    const char* stop;
    std::size_t size;
    const std::uint8_t kind = cursor.look(begin, size);
    const char* const after = begin + size;
    const std::uint8_t next = after < end ? cursor.look(after) : kScanSpace;
    if (kind & kScanLetter) {
      stop = cursor.skip_letters(after);
    } else if (const std::size_t short_form = contraction<true>(begin, end); short_form != 0) {
      stop = begin + short_form;
    } else if ((next & kScanLetter) && (kind & (kScanNumber | kScanNewline)) == 0) {
      stop = cursor.skip_letters(after);
    } else if (kind & kScanNumber) {
      stop = limited_digits(cursor, begin, kDigits);
    } else if ((kind & kScanSpace) == 0 || (*begin == ' ' && (next & kNotOther) == 0)) {
      stop = cursor.skip(cursor.skip_until(after, kNotOther), kScanNewline);
    } else {
      stop = space_or_lines(cursor, begin);
    }
    take(begin, stop);
    cursor.move_to(stop);
  }
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

template <class Take>
void o200k(std::string_view text, const Unicode& properties, Take&& take) {
  constexpr std::uint8_t kNotOther = kScanLetter | kScanNumber | kScanSpace;
  constexpr std::uint8_t kWord = kScanUpper | kScanLower;
  Cursor cursor(text.data(), text.data() + text.size(), properties);
  const char* const end = cursor.end();
  while (!cursor.done()) {
    const char* const begin = cursor.at();
    const char* stop;
    std::size_t size;
    const std::uint8_t kind = cursor.look(begin, size);
    const char* const after = begin + size;
    const std::uint8_t next = after < end ? cursor.look(after) : kScanSpace;
    const bool may_lead = (kind & (kScanLetter | kScanNumber | kScanNewline)) == 0;
    if ((kind & kWord) || (may_lead && (next & kWord))) {
      CasedWord word{begin, false};
      if (may_lead && (next & kWord)) word = cased_word(cursor, after);
      // A mark can lead the word or be part of it.
      if (!word.has_lower && (kind & kWord)) word = cased_word(cursor, begin);
      stop = word.end + contraction<true>(word.end, end);
    } else if (kind & kScanNumber) {
      stop = limited_digits(cursor, begin, 3);
    } else if ((kind & kScanSpace) == 0 || (*begin == ' ' && (next & kNotOther) == 0)) {
      stop = cursor.skip_until(after, kNotOther);
      while (stop < end && (*stop == '\r' || *stop == '\n' || *stop == '/')) ++stop;
    } else {
      stop = space_or_lines(cursor, begin);
    }
    take(begin, stop);
    cursor.move_to(stop);
  }
}

template <class Take>
void clip(std::string_view text, const Unicode& properties, Take&& take) {
  constexpr std::uint8_t kNotOther = kScanLetter | kScanNumber | kScanSpace;
  Cursor cursor(text.data(), text.data() + text.size(), properties);
  while (!cursor.done()) {
    const char* const begin = cursor.at();
    std::size_t size;
    const std::uint8_t kind = cursor.look(begin, size);
    const char* stop = begin + size;
    if (kind & kScanSpace) {
      cursor.move_to(stop);
      continue;
    }
    if (const std::size_t short_form = contraction<false>(begin, cursor.end()); short_form != 0) {
      stop = begin + short_form;
    } else if (kind & kScanLetter) {
      stop = cursor.skip_letters(begin);
    } else if ((kind & kScanNumber) == 0) {
      stop = cursor.skip_until(begin, kNotOther);
    }
    take(begin, stop);
    cursor.move_to(stop);
  }
}

}  // namespace haul::tokenizers::scanning

template <class Take>
void haul::tokenizers::scan(Scanner scanner, std::string_view text, Take&& take) {
  const Unicode& properties = unicode();
  switch (scanner) {
    case Scanner::kGpt2:
      return scanning::gpt2(text, properties, take);
    case Scanner::kGpt2Digits:
      return scanning::gpt2_digits(text, properties, take);
    case Scanner::kCl100k:
      return scanning::cl100k<3>(text, properties, take);
    case Scanner::kQwen2:
      return scanning::cl100k<1>(text, properties, take);
    case Scanner::kO200k:
      return scanning::o200k(text, properties, take);
    case Scanner::kClip:
      return scanning::clip(text, properties, take);
  }
}
