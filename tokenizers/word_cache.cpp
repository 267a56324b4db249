#include "tokenizers/word_cache.h"

#include <algorithm>

namespace haul::tokenizers {
namespace {

constexpr int kFewestBits = 12;
constexpr int kMostBits = 20;
constexpr int kStepBits = 3;

}  // namespace

WordTable::WordTable(int bits)
    : shift_(64 - bits),
      mask_((std::size_t{1} << bits) - 1),
      pool_size_((mask_ + 1) * 8),
      slot_pages_((mask_ + 1) * sizeof(Slot)),
      pool_pages_(pool_size_ * sizeof(std::uint32_t)),
      slots_(slot_pages_.as<Slot>()),
      pool_(pool_pages_.as<std::uint32_t>()) {}

std::uint32_t* WordTable::take_pool(std::size_t words) {
  const std::size_t at = pooled_.fetch_add(words, std::memory_order_relaxed);
  return at + words <= pool_size_ ? pool_ + at : nullptr;
}

bool WordTable::is_long_word(const Slot& slot, std::string_view word) const {
  return word.size() > kShortWord &&
         std::memcmp(pool_ + load(slot.high), word.data(), word.size()) == 0;
}

bool WordTable::is_there(const Query& query) const {
  std::size_t at = query.hash >> shift_;
  for (std::size_t i = 0; i < kProbes; ++i, at = (at + 1) & mask_) {
    const Slot& slot = slots_[at];
    const std::uint64_t head = load(slot.head, std::memory_order_acquire);
    if (head == 0) return false;
    if (head == kBusy) return true;  // perhaps this very word
    if (((head ^ query.kind) & 0xFFFF) != 0 || load(slot.low) != query.low) continue;
    if (load(slot.high) == query.high || is_long_word(slot, query.word)) return true;
  }
  return false;
}

void WordTable::put(const Query& query, const std::uint32_t* ids, std::size_t count) {
  const std::string_view word = query.word;
  if (word.empty() || word.size() > kLongWord || count > kLongWord) return;
  const bool is_long = word.size() > kShortWord;
  const bool is_inline = count <= IdBuffer::kHandful &&
                         std::all_of(ids, ids + count, [](auto id) { return id < kInlineId; });
  // Threads that meet a new word at the same time must not fill the table with it.
  if (is_there(query)) return;
  const std::size_t word_room = is_long ? (word.size() + 3) / 4 : 0;
  const std::size_t room = word_room + (is_inline ? 0 : count + 1);
  std::uint32_t* pooled = nullptr;
  if (room > 0 && (pooled = take_pool(room)) == nullptr) return;
  std::uint64_t head = query.kind;
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
    tail = static_cast<std::uint64_t>(list - pool_);
  }
  if (is_long) std::memcpy(pooled, word.data(), word.size());
  std::size_t at = query.hash >> shift_;
  for (std::size_t i = 0; i < kProbes; ++i, at = (at + 1) & mask_) {
    Slot& slot = slots_[at];
    std::uint64_t empty = 0;
    if (!std::atomic_ref(slot.head).compare_exchange_strong(empty, kBusy,
                                                            std::memory_order_relaxed)) {
      continue;
    }
    const std::uint64_t high = is_long ? static_cast<std::uint64_t>(pooled - pool_) : query.high;
    std::atomic_ref(slot.low).store(query.low, std::memory_order_relaxed);
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
