#pragma once

// Text on its way through the pipeline: bytes, always well-formed UTF-8, and, only when offsets
// are wanted, for each byte the bytes of the original that it stands for.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace haul::tokenizers {

// Bytes of the original text.
struct Span {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

// One character of a transformed text. change 0: stands in place of the next old character;
// n > 0: is new, and belongs to what came before; n < 0: stands for the next old character and
// for n more that disappear.
struct Change {
  char32_t point = 0;
  int change = 0;
};

class Text {
 public:
  // A part of the original that begins at `offset`.
  void assign(std::string_view original, std::size_t offset, bool tracked);
  void clear(bool tracked);

  const std::string& bytes() const { return bytes_; }
  bool tracked() const { return tracked_; }
  // One for each byte; empty when not tracked.
  const std::vector<Span>& spans() const { return spans_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }

  // Rewrites the whole text; the first `skipped` characters stand for nothing.
  void transform(std::span<const Change> changes, std::size_t skipped = 0);
  // Puts text in front that stands for the first character; nothing when empty.
  void prepend(std::string_view prefix);

  // Appends bytes [begin, end) of another text.
  void append(const Text& other, std::size_t begin, std::size_t end);
  // Appends bytes that stand for the given part of the original.
  void append(std::string_view bytes, Span span);

  // A buffer for transform's argument, kept to save allocations.
  std::vector<Change>& changes();

 private:
  std::string bytes_;
  std::vector<Span> spans_;
  bool tracked_ = false;
  std::vector<Change> changes_;
  std::string old_bytes_;
  std::vector<Span> old_spans_;
};

}  // namespace haul::tokenizers
