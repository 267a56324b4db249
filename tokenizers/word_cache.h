#pragma once

// The ids of words met before, shared by all callers of one tokenizer. A WordTable only ever takes
// words in; the WordCache replaces one that is full by an empty one, larger until it is of the
// largest size: 32 MiB of slots, of which three in four are used, and 32 MiB for words and ids that
// are too long for a slot. Memory is touched as words come. From any thread, without a lock but
// for the replacement.

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>

#include "tokenizers/id_buffer.h"
#include "tokenizers/pages.h"
#include "tokenizers/vocabulary.h"

namespace haul::tokenizers {

static_assert(std::endian::native == std::endian::little);

class WordTable {
 public:
  static constexpr std::size_t kShortWord = 16;
  static constexpr std::size_t kLongWord = 256;

  // A word to be looked up. It is known by its bytes or, a long one, by their hash; by its size,
  // and by a tag below 4 that makes equal words differ.
  struct Query {
    std::string_view word;
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    std::uint64_t hash = 0;
    std::uint16_t kind = 0;
    std::uint16_t tag = 0;
  };

  explicit WordTable(int bits);

  // Fills the query in its place, because copying what was just written stalls the processor.
  // Memory before `limit` may be read.
  static void make_query(std::string_view word, std::uint32_t tag, const char* limit,
                         Query& query) {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    if (word.size() > kShortWord) {
      low = hash_bytes(word);
    } else {
      read_short(word, limit, low, high);
    }
    const auto kind = static_cast<std::uint16_t>(word.size() << 2 | tag | kUsed);
    query.word = word;
    query.low = low;
    query.high = high;
    query.hash = (low ^ high * 0xD6E8FEB86659FD93 ^ kind) * 0x9E3779B97F4A7C15;
    query.kind = kind;
    query.tag = static_cast<std::uint16_t>(tag);
  }
  // Brings the word's slot nearer, where it is far away in memory.
  void prefetch(const Query& query) const { __builtin_prefetch(&slots_[query.hash >> shift_]); }

  // Appends the ids of the word; false when it is unknown.
  bool append(const Query& query, IdBuffer& ids) const {
    std::size_t at = query.hash >> shift_;
    for (std::size_t i = 0; i < kProbes; ++i, at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      const std::uint64_t head = load(slot.head, std::memory_order_acquire);
      const std::uint64_t unlike = ((head ^ query.kind) & 0xFFFF) | (load(slot.low) ^ query.low);
      if ((unlike | (load(slot.high) ^ query.high)) == 0 ||
          (unlike == 0 && is_long_word(slot, query.word))) {
        append_slot(head, load(slot.tail), ids);
        return true;
      }
      if (head == 0) return false;
    }
    return false;
  }

  // Remembers a word, unless its slots are taken.
  void put(const Query& query, const std::uint32_t* ids, std::size_t count);
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
  // What a word of each size has of the first eight bytes, and of the next.
  static constexpr auto kMasks = [] {
    std::array<std::uint64_t, 2 * (kShortWord + 1)> masks{};
    const auto mask = [](std::size_t bytes) {
      return bytes >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * bytes)) - 1;
    };
    for (std::size_t size = 0; size <= kShortWord; ++size) {
      masks[size] = mask(size);
      masks[kShortWord + 1 + size] = size > 8 ? mask(size - 8) : 0;
    }
    return masks;
  }();

  // head: the kind, the number of ids in 8 bits, the first id in 24, 16 bits of the last.
  // tail: the second and the third id in 24 bits each, the other bits of the last; or where in the
  // pool a count and the ids stand. A long word has in `high` where its bytes stand. The head is
  // written last, and then nothing changes any more.
  struct alignas(32) Slot {
    std::uint64_t low, high, head, tail;
  };

  static std::uint64_t load(const std::uint64_t& word,
                            std::memory_order order = std::memory_order_relaxed) {
    return std::atomic_ref(const_cast<std::uint64_t&>(word)).load(order);
  }
  static void read_short(std::string_view word, const char* limit, std::uint64_t& low,
                         std::uint64_t& high) {
    if (static_cast<std::size_t>(limit - word.data()) >= kShortWord) {
      std::memcpy(&low, word.data(), 8);
      std::memcpy(&high, word.data() + 8, 8);
      low &= kMasks[word.size()];
      high &= kMasks[kShortWord + 1 + word.size()];
    } else {
      char padded[kShortWord] = {};
      std::memcpy(padded, word.data(), word.size());
      std::memcpy(&low, padded, 8);
      std::memcpy(&high, padded + 8, 8);
    }
  }
  void append_slot(std::uint64_t head, std::uint64_t tail, IdBuffer& ids) const {
    const std::uint64_t count = head >> 16 & 255;
    if (count == kPooled) {
      const std::uint32_t* list = pool_ + tail;
      return ids.append(list + 1, *list);
    }
    const auto cut = [](std::uint64_t id) { return static_cast<std::uint32_t>(id & 0xFFFFFF); };
    ids.append_handful({cut(head >> 24), cut(tail), cut(tail >> 24),
                        static_cast<std::uint32_t>(head >> 48 | tail >> 48 << 16)},
                       count);
  }
  bool is_there(const Query& query) const;
  // Room in the pool, or null.
  std::uint32_t* take_pool(std::size_t words);
  bool is_long_word(const Slot& slot, std::string_view word) const;

  int shift_;
  std::size_t mask_;
  std::size_t pool_size_;
  ZeroPages slot_pages_;
  ZeroPages pool_pages_;
  Slot* slots_;
  std::uint32_t* pool_;
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
