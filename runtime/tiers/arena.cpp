#include "runtime/tiers/arena.h"

#include <iterator>

namespace haul::runtime {

Arena::Arena(Bytes size) : size_(size) {
  if (size > 0) gaps_.emplace(0, size);
}

std::optional<Bytes> Arena::take(std::map<Bytes, Bytes>::iterator gap, Bytes size) {
  const Bytes offset = gap->first;
  const Bytes rest = gap->second - size;
  gaps_.erase(gap);
  if (rest > 0) gaps_.emplace(offset + size, rest);
  taken_.emplace(offset, size);
  used_ += size;
  next_ = offset + size;
  return offset;
}

std::optional<Bytes> Arena::allocate(Bytes size) {
  if (size == 0) size = 1;  // every piece has an offset of its own
  const auto start = gaps_.lower_bound(next_);
  for (auto gap = start; gap != gaps_.end(); ++gap) {
    if (gap->second >= size) return take(gap, size);
  }
  for (auto gap = gaps_.begin(); gap != start; ++gap) {
    if (gap->second >= size) return take(gap, size);
  }
  return std::nullopt;
}

void Arena::free(Bytes offset) {
  const auto piece = taken_.find(offset);
  auto gap = gaps_.emplace(offset, piece->second).first;
  used_ -= piece->second;
  taken_.erase(piece);
  const auto after = std::next(gap);
  if (after != gaps_.end() && gap->first + gap->second == after->first) {
    gap->second += after->second;
    gaps_.erase(after);
  }
  if (gap == gaps_.begin()) return;
  const auto before = std::prev(gap);
  if (before->first + before->second == gap->first) {
    before->second += gap->second;
    gaps_.erase(gap);
  }
}

}  // namespace haul::runtime
