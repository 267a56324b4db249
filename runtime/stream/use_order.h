#pragma once

// The order in which weights are used, learned while they are: what came after the last two uses
// comes after them again. A pass that takes another way is learned as it goes. Until something is
// known, weights are expected in the order of their numbers. One thread at a time.

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace haul::runtime {

class UseOrder {
 public:
  // Where someone (a thread) is in the order.
  struct Position {
    int before = -1;
    int now = -1;
  };

  explicit UseOrder(int count = 0) : after_one_(count, -1) {}
  void add_weight() { after_one_.push_back(-1); }

  // Repeated uses of one weight in a row count as one.
  void use(Position& position, int weight);
  // Moves on to what is expected next.
  Position next(const Position& position) const;

 private:
  std::unordered_map<std::uint64_t, int> after_two_;
  std::vector<int> after_one_;
};

}  // namespace haul::runtime
