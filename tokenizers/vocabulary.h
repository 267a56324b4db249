#pragma once

// Tokens and their ids, both ways. Filled once, then immutable and readable from any thread.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace haul::tokenizers {

// A hash that is good enough for tables of our own; not for hostile keys chosen against it, which
// cost time in proportion to their bytes and no more than a probe of the whole table.
std::uint64_t hash_bytes(std::string_view bytes);

class Vocabulary {
 public:
  // Room for this many tokens of this many bytes together.
  void reserve(std::size_t tokens, std::size_t bytes);
  // A token given again takes the new id. Throws Error(kResource) beyond 4 GiB of tokens.
  void add(std::string_view token, std::uint32_t id);
  // REQUIRES: called once, after the last add.
  void finish();

  std::optional<std::uint32_t> find(std::string_view token) const;
  // REQUIRES: finished. Lives as long as this object.
  std::optional<std::string_view> token(std::uint32_t id) const;
  std::size_t size() const { return entries_.size(); }
  std::size_t longest() const { return longest_; }
  std::uint32_t id(std::size_t index) const { return entries_[index].id; }
  std::string_view text(std::size_t index) const {
    return std::string_view(bytes_).substr(entries_[index].offset, entries_[index].size);
  }

 private:
  struct Entry {
    std::uint32_t offset = 0;
    std::uint32_t size = 0;
    std::uint32_t id = 0;
  };
  // With a copy of what a lookup needs, so that it touches two places and not three.
  struct Slot {
    std::uint32_t tag = 0;  // of the hash
    std::uint32_t index = kEmpty;
    std::uint32_t offset = 0;
    std::uint32_t size = 0;
  };
  static constexpr std::uint32_t kEmpty = 0xFFFFFFFF;

  std::size_t locate(std::string_view token, std::uint64_t hash) const;
  void grow(std::size_t slots);

  std::string bytes_;
  std::vector<Entry> entries_;
  std::vector<Slot> slots_;            // a power of two, at most half full
  std::vector<std::uint32_t> by_id_;   // index of each id; empty when ids are sparse
  std::vector<std::uint32_t> sorted_;  // indices in order of ids, when they are
  std::size_t longest_ = 0;
};

}  // namespace haul::tokenizers
