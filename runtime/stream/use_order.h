#pragma once

// The order in which weights are used, learned while they are: what came after the last two uses
// comes after them again. A pass that takes another way is learned as it goes. Until something is
// known, those that were never used are expected in the order of their numbers. One thread at a
// time.

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

  void add_weight();
  // A number that is not expected before it has been used.
  void skip_number();

  // Repeated uses of one weight in a row count as one.
  void use(Position& position, int weight);
  // Moves on to what is expected next.
  Position next(const Position& position) const;
  // Whether that has been seen before.
  bool knows_next(const Position& position) const;

 private:
  int seen_after(const Position& position) const;
  int first_unused(int from) const;

  std::unordered_map<std::uint64_t, int> after_two_;
  std::vector<int> after_one_;
  std::vector<bool> used_;
  int unused_ = 0;  // all before it are used
  int first_ = 0;   // that was used
};

}  // namespace haul::runtime
