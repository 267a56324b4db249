#pragma once

// The ids of words met before, shared by all callers of one tokenizer. A WordTable only ever takes
// words in; the WordCache replaces one that is full by an empty one, larger until it is of the
// largest size: 8 MiB of slots, of which three in four are used, and 4 MiB for words and ids that
// are too long for a slot. Memory is touched as words come. From any thread, without a lock but
// for the replacement.

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>

#include "tokenizers/id_buffer.h"

namespace haul::tokenizers {

static_assert(std::endian::native == std::endian::little);

class WordTable {
 public:
  static constexpr std::size_t kShortWord = 16;
  static constexpr std::size_t kLongWord = 256;

  explicit WordTable(int bits);

  // Appends the ids of the word; false when it is unknown. `tag` is below 4 and makes equal words
  // differ. Memory before `limit` may be read.
  bool append(std::string_view word, std::uint32_t tag, const char* limit, IdBuffer& ids) const {
    if (word.size() > kShortWord) return append_long(word, tag, ids);
    const Key key = short_key(word, tag, limit);
    std::size_t at = hash(key) >> shift_;
    for (std::size_t i = 0; i < kProbes; ++i, at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      const std::uint64_t head = load(slot.head, std::memory_order_acquire);
      if (head == 0) return false;
      if (static_cast<std::uint16_t>(head) != key.kind || load(slot.low) != key.low ||
          load(slot.high) != key.high) {
        continue;
      }
      append_slot(head, load(slot.tail), ids);
      return true;
    }
    return false;
  }

  // Remembers a word, unless its slots are taken.
  void put(std::string_view word, std::uint32_t tag, const std::uint32_t* ids, std::size_t count);
  bool is_full() const {
    return used_.load(std::memory_order_relaxed) > (mask_ >> 2) * 3 ||
           pooled_.load(std::memory_order_relaxed) > pool_size_;
  }
  int bits() const { return 64 - shift_; }

 private:
  static constexpr std::size_t kProbes = 32;
  static constexpr std::uint16_t kUsed = 1u << 15;
  static constexpr std::uint64_t kBusy = 1;  // a head that no word has
  static constexpr std::uint32_t kInlineId = 1u << 24;
  static constexpr std::uint64_t kPooled = 255;

  // What makes a word: its bytes, or for a long one their hash; its size and its tag.
  struct Key {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    std::uint16_t kind = 0;
  };
  // head: the kind, the number of ids in 8 bits, the first id in 24, 16 bits of the last.
  // tail: the second and the third id in 24 bits each, the other bits of the last; or where in the
  // pool a count and the ids stand. A long word has in `high` where its bytes stand. The head is
  // written last, and nothing is ever changed.
  struct alignas(32) Slot {
    std::uint64_t low, high, head, tail;
  };

  static std::uint64_t load(const std::uint64_t& word,
                            std::memory_order order = std::memory_order_relaxed) {
    return std::atomic_ref(const_cast<std::uint64_t&>(word)).load(order);
  }
  static Key short_key(std::string_view word, std::uint32_t tag, const char* limit) {
    Key key;
    const char* p = word.data();
    const std::size_t size = word.size();
    key.kind = kind(size, tag);
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
  static std::uint16_t kind(std::size_t size, std::uint32_t tag) {
    return static_cast<std::uint16_t>(size << 2 | tag | kUsed);
  }
  static std::uint64_t hash(const Key& key) {
    return (key.low ^ key.high * 0xD6E8FEB86659FD93 ^ key.kind) * 0x9E3779B97F4A7C15;
  }
  void append_slot(std::uint64_t head, std::uint64_t tail, IdBuffer& ids) const {
    const std::uint64_t count = head >> 16 & 255;
    if (count == kPooled) {
      const std::uint32_t* list = pool_.get() + tail;
      return ids.append(list + 1, *list);
    }
    const auto cut = [](std::uint64_t id) { return static_cast<std::uint32_t>(id & 0xFFFFFF); };
    ids.append_handful({cut(head >> 24), cut(tail), cut(tail >> 24),
                        static_cast<std::uint32_t>(head >> 48 | tail >> 48 << 16)},
                       count);
  }
  bool append_long(std::string_view word, std::uint32_t tag, IdBuffer& ids) const;
  // Room in the pool, or null.
  std::uint32_t* take_pool(std::size_t words);
  bool is_long_word(const Slot& slot, std::string_view word) const;

  template <class Word>
  using Memory = std::unique_ptr<Word[], decltype(&std::free)>;

  int shift_;
  std::size_t mask_;
  std::size_t pool_size_;
  std::unique_ptr<void, decltype(&std::free)> memory_;
  Slot* slots_;  // in memory_
  Memory<std::uint32_t> pool_;
  alignas(64) std::atomic<std::size_t> used_{0};
  std::atomic<std::size_t> pooled_{0};
};

class WordCache {
 public:
  // The table in use; kept alive by whoever holds it.
  std::shared_ptr<WordTable> table() const;
  // After `full` is so: the table that took its place.
  std::shared_ptr<WordTable> replace(const WordTable& full);

 private:
  mutable std::mutex mutex_;
  mutable std::shared_ptr<WordTable> table_;
};

}  // namespace haul::tokenizers
