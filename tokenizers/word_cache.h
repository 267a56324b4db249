#pragma once

// The ids of words met before, for one caller at a time. Bounded: 1 MiB for short words, which
// replace each other, and about 4 MiB for long ones, all dropped when that is full.

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace haul::tokenizers {

class WordCache {
 public:
  // A short word, padded with zeros, and what else makes it unlike other words (its length, its
  // place).
  struct Key {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    std::uint16_t kind = 0;
  };
  static constexpr std::size_t kShortWord = 16;
  static constexpr std::size_t kLongWord = 256;
  static constexpr std::uint32_t kInlineIds = 3;

  struct Entry {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    std::uint16_t kind = 0;  // 0: empty
    std::uint16_t count = 0;
    std::uint32_t ids[kInlineIds] = {};
  };

  // REQUIRES: word.size() <= kShortWord. `tag` is below 4. `limit` is the end of memory that may
  // be read.
  static Key key(std::string_view word, std::uint32_t tag, const char* limit) {
    Key key;
    key.kind = static_cast<std::uint16_t>(word.size() << 2 | tag | kUsed);
    const char* p = word.data();
    const std::size_t size = word.size();
    if (static_cast<std::size_t>(limit - p) >= kShortWord) {
      std::memcpy(&key.low, p, 8);
      std::memcpy(&key.high, p + 8, 8);
      if (size <= 8) {
        key.high = 0;
        if (size < 8) key.low &= (std::uint64_t{1} << (8 * size)) - 1;
      } else if (size < 16) {
        key.high &= (std::uint64_t{1} << (8 * (size - 8))) - 1;
      }
    } else {
      char padded[kShortWord] = {};
      std::memcpy(padded, p, size);
      std::memcpy(&key.low, padded, 8);
      std::memcpy(&key.high, padded + 8, 8);
    }
    return key;
  }

  // The place for the key; it is a hit when matches() says so.
  Entry& entry(const Key& key) {
    if (short_.empty()) short_.resize(kEntries);
    std::uint64_t hash = (key.low ^ key.high * 0xD6E8FEB86659FD93 ^ key.kind) * 0x9E3779B97F4A7C15;
    return short_[hash >> (64 - kBits)];
  }
  static bool matches(const Entry& entry, const Key& key) {
    return entry.low == key.low && entry.high == key.high && entry.kind == key.kind;
  }
  static void store(Entry& entry, const Key& key, const std::uint32_t* ids, std::size_t count) {
    if (count > kInlineIds) return;
    entry.low = key.low;
    entry.high = key.high;
    entry.kind = key.kind;
    entry.count = static_cast<std::uint16_t>(count);
    for (std::size_t i = 0; i < count; ++i) entry.ids[i] = ids[i];
  }

  // Longer words, and short ones of more ids. The ids stay valid until the next put.
  struct Ids {
    const std::uint32_t* data = nullptr;  // null: unknown
    std::size_t count = 0;
  };
  Ids find_long(std::string_view word, std::uint32_t tag) const;
  void put_long(std::string_view word, std::uint32_t tag, const std::uint32_t* ids,
                std::size_t count);

 private:
  static constexpr std::uint32_t kUsed = 1u << 15;
  static constexpr int kBits = 15;
  static constexpr std::size_t kEntries = std::size_t{1} << kBits;
  static constexpr std::size_t kLongEntries = std::size_t{1} << 15;
  static constexpr std::size_t kLongBytes = std::size_t{2} << 20;

  struct LongEntry {
    std::uint64_t hash = 0;
    std::uint32_t bytes = 0;  // where the word lies
    std::uint32_t ids = 0;
    std::uint16_t size = 0;  // 0: empty
    std::uint16_t count = 0;
  };
  std::size_t locate(std::string_view word, std::uint64_t hash) const;

  std::vector<Entry> short_;
  std::vector<LongEntry> long_;
  std::size_t long_count_ = 0;
  std::string bytes_;
  std::vector<std::uint32_t> ids_;
};

}  // namespace haul::tokenizers
