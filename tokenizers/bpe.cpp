#include <algorithm>
#include <array>
#include <bit>
#include <functional>

#include <fmt/format.h>

#include "haul/error.h"
#include "tokenizers/model.h"
#include "tokenizers/utf8.h"

namespace haul::tokenizers {
namespace {

using Symbol = ModelScratch::Symbol;

constexpr std::uint32_t kNoId = 0xFFFFFFFF;
constexpr std::uint32_t kNoRank = 0xFFFFFFFF;
// Up to here a scan for the best pair beats a heap.
constexpr std::size_t kShortWord = 40;
// Code points with a table of their own: ASCII and the byte-level alphabet.
constexpr std::size_t kDirect = 0x180;

struct Merged {
  std::uint32_t rank = kNoRank;
  std::uint32_t id = 0;
};

// Pairs of ids to what they become.
class MergeTable {
 public:
  explicit MergeTable(const std::vector<Merge>& merges)
      : slots_(std::bit_ceil(std::max<std::size_t>(16, merges.size() * 2))) {
    for (const Merge& merge : merges) {
      Slot& slot = slots_[locate(key(merge.left, merge.right))];
      slot = {key(merge.left, merge.right), {merge.rank, merge.merged}};
    }
  }

  Merged find(std::uint32_t left, std::uint32_t right) const {
    return slots_[locate(key(left, right))].merged;
  }

 private:
  struct Slot {
    std::uint64_t key = kEmpty;
    Merged merged;
  };
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};

  static std::uint64_t key(std::uint32_t left, std::uint32_t right) {
    return std::uint64_t{left} << 32 | right;
  }
  std::size_t locate(std::uint64_t wanted) const {
    const std::size_t mask = slots_.size() - 1;
    std::uint64_t hash = wanted * 0x9E3779B97F4A7C15;
    hash ^= hash >> 32;
    for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
      if (slots_[i].key == wanted || slots_[i].key == kEmpty) return i;
    }
  }

  std::vector<Slot> slots_;
};

class Bpe final : public Model {
 public:
  Bpe(Vocabulary vocabulary, const std::vector<Merge>& merges, BpeOptions options)
      : Model(std::move(vocabulary)), merges_(merges), options_(std::move(options)) {
    plain_ = options_.continuing_subword_prefix.empty() && options_.end_of_word_suffix.empty();
    if (options_.byte_fallback) bytes_ = byte_tokens(this->vocabulary());
    if (options_.unk_token) unk_ = this->vocabulary().find(*options_.unk_token);
    std::string character;
    for (std::size_t c = 0; c < kDirect; ++c) {
      character.clear();
      append_utf8(character, static_cast<char32_t>(c));
      direct_[c] = find_visible(character);
    }
    for (const Merge& merge : merges) merged_.push_back(merge.merged);
  }

  void tokenize(std::string_view piece, std::vector<Token>& tokens,
                ModelScratch& scratch) const override {
    if (options_.ignore_merges) {
      if (const auto id = vocabulary().find(piece)) {
        tokens.push_back({*id, 0, static_cast<std::uint32_t>(piece.size()), false});
        return;
      }
    }
    scratch.symbols.clear();
    read_symbols(piece, scratch);
    if (scratch.symbols.size() <= kShortWord) {
      merge_short(scratch);
    } else {
      merge_long(scratch);
    }
    std::uint32_t begin = 0;
    for (const Symbol& symbol : scratch.symbols) {
      if (symbol.size == 0) continue;
      tokens.push_back({symbol.id, begin, begin + symbol.size, false});
      begin += symbol.size;
    }
  }

  bool keeps_spaces() const override { return true; }

  bool splits_before(std::string_view mark) const override {
    if (!plain_ || options_.ignore_merges) return false;
    // A mark of its own ends an unknown part.
    if (options_.fuse_unk && find_visible(mark) == kNoId) return false;
    // True when nothing that a merge makes holds the mark behind anything else.
    return std::all_of(merged_.begin(), merged_.end(), [&](std::uint32_t id) {
      const std::string_view text = vocabulary().token(id).value_or(std::string_view{});
      std::size_t front = 0;
      while (text.substr(front).starts_with(mark)) front += mark.size();
      return text.find(mark, front) == std::string_view::npos;
    });
  }

 private:
  std::uint32_t find_visible(std::string_view character) const {
    const auto id = vocabulary().find(character);
    if (!id || std::binary_search(options_.hidden.begin(), options_.hidden.end(), *id))
      return kNoId;
    return *id;
  }

  std::uint32_t find_character(std::string_view character, bool first, bool last,
                               std::string& text) const {
    if (plain_) {
      const char32_t point = utf8_point(character.data());
      if (point < kDirect) return direct_[point];
      return find_visible(character);
    }
    text.clear();
    if (!first) text += options_.continuing_subword_prefix;
    text += character;
    if (last) text += options_.end_of_word_suffix;
    return vocabulary().find(text).value_or(kNoId);
  }

  void read_symbols(std::string_view piece, ModelScratch& scratch) const {
    std::vector<Symbol>& symbols = scratch.symbols;
    const auto add = [&](std::uint32_t id, std::size_t size) {
      const auto index = static_cast<std::int32_t>(symbols.size());
      if (index > 0) symbols.back().next = index;
      symbols.push_back({id, static_cast<std::uint32_t>(size), index - 1, -1});
    };
    std::size_t unknown = 0;  // bytes of an unknown part that is still open
    for (std::size_t i = 0; i < piece.size();) {
      const std::size_t size = utf8_size(piece[i]);
      const bool last = i + size == piece.size();
      const std::uint32_t id = find_character(piece.substr(i, size), i == 0, last, scratch.text);
      if (id != kNoId) {
        if (unknown > 0) add(*unk_, std::exchange(unknown, 0));
        add(id, size);
      } else if (!add_bytes(plain_ ? piece.substr(i, size) : std::string_view(scratch.text), add) &&
                 options_.unk_token) {
        if (!unk_) {
          throw Error(
              ErrorKind::kUnsupported,
              fmt::format("the unknown token '{}' is not in the vocabulary", *options_.unk_token));
        }
        if (unknown > 0 && !options_.fuse_unk) add(*unk_, std::exchange(unknown, 0));
        unknown += size;
      }
      i += size;
    }
    if (unknown > 0) add(*unk_, unknown);
  }

  template <class Add>
  bool add_bytes(std::string_view text, const Add& add) const {
    if (!options_.byte_fallback) return false;
    const auto id = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)]; };
    for (const char byte : text) {
      if (id(byte) == kNoByte) return false;
    }
    for (const char byte : text) add(id(byte), 1);
    return true;
  }

  void merge_short(ModelScratch& scratch) const {
    std::vector<Symbol>& symbols = scratch.symbols;
    std::vector<std::uint32_t>& ranks = scratch.ranks;
    std::size_t count = symbols.size();
    const auto rank_at = [&](std::size_t i) {
      return i + 1 < count ? merges_.find(symbols[i].id, symbols[i + 1].id).rank : kNoRank;
    };
    ranks.resize(count);
    for (std::size_t i = 0; i < count; ++i) ranks[i] = rank_at(i);
    while (count > 1) {
      std::size_t best = 0;
      for (std::size_t i = 1; i + 1 < count; ++i) {
        if (ranks[i] < ranks[best]) best = i;
      }
      if (ranks[best] == kNoRank) break;
      symbols[best].id = merges_.find(symbols[best].id, symbols[best + 1].id).id;
      symbols[best].size += symbols[best + 1].size;
      --count;
      for (std::size_t i = best + 1; i < count; ++i) {
        symbols[i] = symbols[i + 1];
        ranks[i] = ranks[i + 1];
      }
      ranks[best] = rank_at(best);
      if (best > 0) ranks[best - 1] = rank_at(best - 1);
      ranks[count - 1] = kNoRank;
    }
    symbols.resize(count);
  }

  void merge_long(ModelScratch& scratch) const {
    std::vector<Symbol>& symbols = scratch.symbols;
    std::vector<std::uint64_t>& heap = scratch.heap;  // rank << 32 | position, lowest first
    const auto entry = [&](std::int32_t at) -> std::uint64_t {
      const Symbol& symbol = symbols[static_cast<std::size_t>(at)];
      if (symbol.next < 0) return ~std::uint64_t{0};
      const auto next = static_cast<std::size_t>(symbol.next);
      const std::uint32_t rank = merges_.find(symbol.id, symbols[next].id).rank;
      return std::uint64_t{rank} << 32 | static_cast<std::uint32_t>(at);
    };
    const auto is_merge = [](std::uint64_t e) { return e >> 32 != kNoRank; };
    heap.clear();
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      const std::uint64_t e = entry(static_cast<std::int32_t>(i));
      if (is_merge(e)) heap.push_back(e);
    }
    std::make_heap(heap.begin(), heap.end(), std::greater<>());
    const auto push = [&](std::int32_t at) {
      const std::uint64_t e = entry(at);
      if (!is_merge(e)) return;
      heap.push_back(e);
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    };
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end(), std::greater<>());
      const std::uint64_t top = heap.back();
      heap.pop_back();
      const auto at = static_cast<std::int32_t>(top & 0xFFFFFFFF);
      Symbol& left = symbols[static_cast<std::size_t>(at)];
      if (left.size == 0 || entry(at) != top) continue;  // the pair is gone
      Symbol& right = symbols[static_cast<std::size_t>(left.next)];
      left.id = merges_.find(left.id, right.id).id;
      left.size += right.size;
      left.next = right.next;
      right.size = 0;
      if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = at;
      if (left.previous >= 0) push(left.previous);
      push(at);
    }
  }

  MergeTable merges_;
  BpeOptions options_;
  std::vector<std::uint32_t> bytes_;
  std::vector<std::uint32_t> merged_;
  std::optional<std::uint32_t> unk_;
  std::array<std::uint32_t, kDirect> direct_{};
  bool plain_ = true;
};

}  // namespace

std::unique_ptr<Model> make_bpe(Vocabulary vocabulary, const std::vector<Merge>& merges,
                                BpeOptions options) {
  return std::make_unique<Bpe>(std::move(vocabulary), merges, std::move(options));
}

std::vector<std::uint32_t> byte_tokens(const Vocabulary& vocabulary) {
  std::vector<std::uint32_t> ids(256, kNoByte);
  for (std::size_t byte = 0; byte < ids.size(); ++byte) {
    ids[byte] = vocabulary.find(fmt::format("<0x{:02X}>", byte)).value_or(kNoByte);
  }
  return ids;
}

}  // namespace haul::tokenizers
