#include "tokenizers/text.h"

#include <algorithm>

#include "tokenizers/utf8.h"

namespace haul::tokenizers {

void Text::assign(std::string_view original, std::size_t offset, bool tracked) {
  clear(tracked);
  bytes_.assign(original);
  if (!tracked) return;
  spans_.reserve(original.size());
  for (std::size_t i = 0; i < original.size();) {
    const std::size_t size = utf8_size(original[i]);
    const Span span{static_cast<std::uint32_t>(offset + i),
                    static_cast<std::uint32_t>(offset + i + size)};
    spans_.insert(spans_.end(), size, span);
    i += size;
  }
}

void Text::clear(bool tracked) {
  bytes_.clear();
  spans_.clear();
  tracked_ = tracked;
}

void Text::transform(std::span<const Change> changes, std::size_t skipped) {
  std::swap(bytes_, old_bytes_);
  std::swap(spans_, old_spans_);
  bytes_.clear();
  spans_.clear();
  if (!tracked_) {
    for (const Change& change : changes) append_utf8(bytes_, change.point);
    return;
  }
  std::size_t at = 0;  // in the old text
  const auto advance = [&] {
    if (at < old_bytes_.size()) at += utf8_size(old_bytes_[at]);
  };
  for (std::size_t i = 0; i < skipped; ++i) advance();
  const std::uint32_t start = old_spans_.empty() ? 0 : old_spans_.front().begin;
  for (const Change& change : changes) {
    Span span{start, start};
    if (change.change > 0) {
      if (at > 0) span = old_spans_[at - 1];
    } else {
      if (!old_spans_.empty()) span = old_spans_[std::min(at, old_spans_.size() - 1)];
      for (int i = change.change; i <= 0; ++i) advance();
    }
    const std::size_t before = bytes_.size();
    append_utf8(bytes_, change.point);
    spans_.insert(spans_.end(), bytes_.size() - before, span);
  }
}

void Text::prepend(std::string_view prefix) {
  if (bytes_.empty()) return;
  bytes_.insert(0, prefix);
  if (tracked_) {
    const Span first = spans_.front();
    spans_.insert(spans_.begin(), prefix.size(), first);
  }
}

void Text::append(const Text& other, std::size_t begin, std::size_t end) {
  bytes_.append(other.bytes_, begin, end - begin);
  if (tracked_) {
    const auto first = other.spans_.begin();
    spans_.insert(spans_.end(), first + static_cast<std::ptrdiff_t>(begin),
                  first + static_cast<std::ptrdiff_t>(end));
  }
}

void Text::append(std::string_view bytes, Span span) {
  bytes_.append(bytes);
  if (tracked_) spans_.insert(spans_.end(), bytes.size(), span);
}

std::vector<Change>& Text::changes() {
  changes_.clear();
  return changes_;
}

}  // namespace haul::tokenizers
