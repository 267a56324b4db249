#include "runtime/stream/use_order.h"

namespace haul::runtime {
namespace {

std::uint64_t key(const UseOrder::Position& position) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(position.before)) << 32 |
         static_cast<std::uint32_t>(position.now);
}

}  // namespace

void UseOrder::use(Position& position, int weight) {
  if (weight == position.now) return;
  if (position.now >= 0) {
    after_two_[key(position)] = weight;
    after_one_[position.now] = weight;
  }
  position = {position.now, weight};
}

UseOrder::Position UseOrder::next(const Position& position) const {
  if (position.now < 0) return {-1, 0};
  if (const auto known = after_two_.find(key(position)); known != after_two_.end()) {
    return {position.now, known->second};
  }
  if (const int known = after_one_[position.now]; known >= 0) return {position.now, known};
  return {position.now, (position.now + 1) % static_cast<int>(after_one_.size())};
}

}  // namespace haul::runtime
