#include "tokenizers/vocabulary.h"

#include <algorithm>
#include <cstring>

#include "haul/error.h"

namespace haul::tokenizers {
namespace {

__extension__ using Wide = unsigned __int128;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

}  // namespace

std::uint64_t hash_bytes(std::string_view bytes) {
  constexpr std::uint64_t kFirst = 0x9E3779B97F4A7C15, kSecond = 0xD6E8FEB86659FD93;
  std::uint64_t hash = kFirst ^ bytes.size();
  while (bytes.size() > 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data(), 8);
    hash = mix(hash ^ word, kSecond);
    bytes.remove_prefix(8);
  }
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data(), bytes.size());
  return mix(hash ^ word, kFirst);
}

void Vocabulary::reserve(std::size_t tokens, std::size_t bytes) {
  entries_.reserve(tokens);
  bytes_.reserve(bytes);
  std::size_t slots = 16;
  while (slots < tokens * 2) slots *= 2;
  if (slots > slots_.size()) grow(slots);
}

void Vocabulary::add(std::string_view token, std::uint32_t id) {
  if ((entries_.size() + 1) * 2 > slots_.size()) {
    grow(std::max<std::size_t>(16, slots_.size() * 2));
  }
  const std::uint64_t hash = hash_bytes(token);
  Slot& slot = slots_[locate(token, hash)];
  if (slot.index != kEmpty) {
    entries_[slot.index].id = id;
    return;
  }
  if (bytes_.size() + token.size() >= kEmpty) {
    throw Error(ErrorKind::kResource, "a vocabulary of 4 GiB or more");
  }
  const auto offset = static_cast<std::uint32_t>(bytes_.size());
  const auto size = static_cast<std::uint32_t>(token.size());
  slot = {static_cast<std::uint32_t>(hash >> 32), static_cast<std::uint32_t>(entries_.size()),
          offset, size};
  entries_.push_back({offset, size, id});
  bytes_.append(token);
  longest_ = std::max(longest_, token.size());
}

std::size_t Vocabulary::locate(std::string_view token, std::uint64_t hash) const {
  const std::size_t mask = slots_.size() - 1;
  const auto tag = static_cast<std::uint32_t>(hash >> 32);
  for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (slot.index == kEmpty) return i;
    if (slot.tag == tag && slot.size == token.size() &&
        std::memcmp(bytes_.data() + slot.offset, token.data(), token.size()) == 0) {
      return i;
    }
  }
}

void Vocabulary::grow(std::size_t slots) {
  slots_.assign(slots, Slot{});
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::uint64_t hash = hash_bytes(text(i));
    slots_[locate(text(i), hash)] = {static_cast<std::uint32_t>(hash >> 32),
                                     static_cast<std::uint32_t>(i), entries_[i].offset,
                                     entries_[i].size};
  }
}

void Vocabulary::finish() {
  std::uint32_t highest = 0;
  for (const Entry& entry : entries_) highest = std::max(highest, entry.id);
  // A few holes are common; a single huge id must not cost its size in memory.
  if (highest <= entries_.size() * 4 + 1024) {
    by_id_.assign(std::size_t{highest} + 1, kEmpty);
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      by_id_[entries_[i].id] = static_cast<std::uint32_t>(i);
    }
    return;
  }
  sorted_.resize(entries_.size());
  for (std::size_t i = 0; i < sorted_.size(); ++i) sorted_[i] = static_cast<std::uint32_t>(i);
  std::stable_sort(sorted_.begin(), sorted_.end(), [this](std::uint32_t a, std::uint32_t b) {
    return entries_[a].id < entries_[b].id;
  });
}

std::optional<std::uint32_t> Vocabulary::find(std::string_view token) const {
  if (slots_.empty()) return std::nullopt;
  const Slot& slot = slots_[locate(token, hash_bytes(token))];
  if (slot.index == kEmpty) return std::nullopt;
  return entries_[slot.index].id;
}

std::optional<std::string_view> Vocabulary::token(std::uint32_t id) const {
  if (!by_id_.empty()) {
    if (id >= by_id_.size() || by_id_[id] == kEmpty) return std::nullopt;
    return text(by_id_[id]);
  }
  const auto found = std::lower_bound(
      sorted_.begin(), sorted_.end(), id,
      [this](std::uint32_t index, std::uint32_t wanted) { return entries_[index].id < wanted; });
  if (found == sorted_.end() || entries_[*found].id != id) return std::nullopt;
  return text(*found);
}

}  // namespace haul::tokenizers
