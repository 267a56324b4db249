#include "tokenizers/word_cache.h"

#include <algorithm>
#include <new>

#include "tokenizers/vocabulary.h"

namespace haul::tokenizers {
namespace {

constexpr int kFewestBits = 12;
constexpr int kMostBits = 18;
constexpr int kStepBits = 3;
constexpr std::size_t kLine = 64;  // of the processor's cache

// Zeros, as yet without pages. Throws std::bad_alloc.
void* reserve_zeros(std::size_t bytes) {
  void* memory = std::calloc(bytes, 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

WordTable::WordTable(int bits)
    : shift_(64 - bits),
      mask_((std::size_t{1} << bits) - 1),
      pool_size_((mask_ + 1) * 4),
      memory_(reserve_zeros((mask_ + 1) * sizeof(Slot) + kLine), &std::free),
      pool_(static_cast<std::uint32_t*>(reserve_zeros(pool_size_ * sizeof(std::uint32_t))),
            &std::free) {
  void* first = memory_.get();
  std::size_t space = (mask_ + 1) * sizeof(Slot) + kLine;
  slots_ = static_cast<Slot*>(std::align(kLine, (mask_ + 1) * sizeof(Slot), first, space));
}

std::uint32_t* WordTable::take_pool(std::size_t words) {
  const std::size_t at = pooled_.fetch_add(words, std::memory_order_relaxed);
  return at + words <= pool_size_ ? pool_.get() + at : nullptr;
}

bool WordTable::is_long_word(const Slot& slot, std::string_view word) const {
  return std::memcmp(pool_.get() + load(slot.high), word.data(), word.size()) == 0;
}

bool WordTable::append_long(std::string_view word, std::uint32_t tag, IdBuffer& ids) const {
  if (word.size() > kLongWord) return false;
  const Key key{hash_bytes(word), 0, kind(word.size(), tag)};
  std::size_t at = hash(key) >> shift_;
  for (std::size_t i = 0; i < kProbes; ++i, at = (at + 1) & mask_) {
    const Slot& slot = slots_[at];
    const std::uint64_t head = load(slot.head, std::memory_order_acquire);
    if (head == 0) return false;
    if (static_cast<std::uint16_t>(head) != key.kind || load(slot.low) != key.low ||
        !is_long_word(slot, word)) {
      continue;
    }
    append_slot(head, load(slot.tail), ids);
    return true;
  }
  return false;
}

void WordTable::put(std::string_view word, std::uint32_t tag, const std::uint32_t* ids,
                    std::size_t count) {
  if (word.empty() || word.size() > kLongWord || count > kLongWord) return;
  const bool is_long = word.size() > kShortWord;
  const Key key = is_long ? Key{hash_bytes(word), 0, kind(word.size(), tag)}
                          : short_key(word, tag, word.data() + word.size());
  const bool is_inline = count <= IdBuffer::kHandful &&
                         std::all_of(ids, ids + count, [](auto id) { return id < kInlineId; });
  const std::size_t word_room = is_long ? (word.size() + 3) / 4 : 0;
  const std::size_t room = word_room + (is_inline ? 0 : count + 1);
  std::uint32_t* pooled = nullptr;
  if (room > 0 && (pooled = take_pool(room)) == nullptr) return;
  std::uint64_t head = key.kind;
  std::uint64_t tail = 0;
  if (is_inline) {
    const auto id = [&](std::size_t i) { return std::uint64_t{i < count ? ids[i] : 0}; };
    head |= count << 16 | id(0) << 24 | id(3) << 48;
    tail = id(1) | id(2) << 24 | id(3) >> 16 << 48;
  } else {
    std::uint32_t* list = pooled + word_room;
    list[0] = static_cast<std::uint32_t>(count);
    std::copy_n(ids, count, list + 1);
    head |= kPooled << 16;
    tail = static_cast<std::uint64_t>(list - pool_.get());
  }
  if (is_long) std::memcpy(pooled, word.data(), word.size());
  std::size_t at = hash(key) >> shift_;
  for (std::size_t i = 0; i < kProbes; ++i, at = (at + 1) & mask_) {
    Slot& slot = slots_[at];
    std::uint64_t empty = 0;
    if (!std::atomic_ref(slot.head).compare_exchange_strong(empty, kBusy,
                                                            std::memory_order_relaxed)) {
      continue;
    }
    const std::uint64_t high =
        is_long ? static_cast<std::uint64_t>(pooled - pool_.get()) : key.high;
    std::atomic_ref(slot.low).store(key.low, std::memory_order_relaxed);
    std::atomic_ref(slot.high).store(high, std::memory_order_relaxed);
    std::atomic_ref(slot.tail).store(tail, std::memory_order_relaxed);
    std::atomic_ref(slot.head).store(head, std::memory_order_release);
    used_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
}

std::shared_ptr<WordTable> WordCache::table() const {
  const std::lock_guard lock(mutex_);
  if (table_ == nullptr) table_ = std::make_shared<WordTable>(kFewestBits);
  return table_;
}

std::shared_ptr<WordTable> WordCache::replace(const WordTable& full) {
  const std::lock_guard lock(mutex_);
  if (table_.get() == &full) {
    table_ = std::make_shared<WordTable>(std::min(full.bits() + kStepBits, kMostBits));
  }
  return table_;
}

}  // namespace haul::tokenizers
