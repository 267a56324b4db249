#include "tokenizers/word_cache.h"

#include "tokenizers/vocabulary.h"

namespace haul::tokenizers {
namespace {

std::uint64_t tagged_hash(std::string_view word, std::uint32_t tag) {
  return hash_bytes(word) + std::uint64_t{tag} * 0x9E3779B97F4A7C15;
}

}  // namespace

std::size_t WordCache::locate(std::string_view word, std::uint64_t hash) const {
  for (std::size_t i = hash & (kLongEntries - 1);; i = (i + 1) & (kLongEntries - 1)) {
    const LongEntry& entry = long_[i];
    if (entry.size == 0) return i;
    if (entry.hash == hash && std::string_view(bytes_).substr(entry.bytes, entry.size) == word) {
      return i;
    }
  }
}

WordCache::Ids WordCache::find_long(std::string_view word, std::uint32_t tag) const {
  if (long_.empty()) return {};
  const LongEntry& entry = long_[locate(word, tagged_hash(word, tag))];
  if (entry.size == 0) return {};
  return {ids_.data() + entry.ids, entry.count};
}

void WordCache::put_long(std::string_view word, std::uint32_t tag, const std::uint32_t* ids,
                         std::size_t count) {
  // A word of no tokens needs an address too, so that it is not taken for an unknown one.
  if (word.empty() || word.size() > kLongWord || count > kLongWord) return;
  const bool is_full = long_count_ * 2 >= kLongEntries || bytes_.size() >= kLongBytes;
  if (long_.empty() || is_full) {
    long_.assign(kLongEntries, LongEntry{});
    long_count_ = 0;
    bytes_.clear();
    bytes_.reserve(kLongBytes + kLongWord);
    ids_.clear();
    ids_.reserve(kLongBytes / sizeof(std::uint32_t));
  }
  const std::uint64_t hash = tagged_hash(word, tag);
  LongEntry& entry = long_[locate(word, hash)];
  if (entry.size != 0) return;
  entry = {hash, static_cast<std::uint32_t>(bytes_.size()), static_cast<std::uint32_t>(ids_.size()),
           static_cast<std::uint16_t>(word.size()), static_cast<std::uint16_t>(count)};
  bytes_.append(word);
  ids_.insert(ids_.end(), ids, ids + count);
  ++long_count_;
}

}  // namespace haul::tokenizers
