#include "runtime/stream/use_order.h"

namespace haul::runtime {
namespace {

std::uint64_t key(const UseOrder::Position& position) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(position.before)) << 32 |
         static_cast<std::uint32_t>(position.now);
}

}  // namespace

void UseOrder::add_weight() {
  after_one_.push_back(-1);
  used_.push_back(false);
}

void UseOrder::skip_number() {
  add_weight();
  used_.back() = true;
  unused_ = first_unused(unused_);
}

int UseOrder::first_unused(int from) const {
  const auto count = static_cast<int>(used_.size());
  while (from < count && used_[from]) ++from;
  return from;
}

void UseOrder::use(Position& position, int weight) {
  if (after_two_.empty() && position.now < 0) first_ = weight;
  used_[weight] = true;
  unused_ = first_unused(unused_);
  if (weight == position.now) return;
  if (position.now >= 0) {
    after_two_[key(position)] = weight;
    after_one_[position.now] = weight;
  }
  position = {position.now, weight};
}

// Below 0: nothing.
int UseOrder::seen_after(const Position& position) const {
  if (position.now < 0) return -1;
  const auto known = after_two_.find(key(position));
  return known != after_two_.end() ? known->second : after_one_[position.now];
}

bool UseOrder::knows_next(const Position& position) const {
  return seen_after(position) >= 0;
}

UseOrder::Position UseOrder::next(const Position& position) const {
  const auto count = static_cast<int>(used_.size());
  if (position.now < 0) return {-1, unused_ < count ? unused_ : first_};
  if (const int seen = seen_after(position); seen >= 0) return {position.now, seen};
  // Behind one that is expected itself come those with larger numbers.
  const int unused = used_[position.now] ? unused_ : first_unused(position.now + 1);
  return {position.now, unused < count ? unused : first_};
}

}  // namespace haul::runtime
