#pragma once

// The figures of a choice of places, kept up to date while single units move: what a move would
// change is told in time that does not depend on the number of units.

#include <functional>
#include <map>
#include <vector>

#include "core/place/world.h"

namespace haul::core {

class Tally {
 public:
  struct Figures {
    bool fits = false;
    double seconds = std::numeric_limits<double>::infinity();
    int hops = 0;
    Size away = 0;  // bytes in RAM and, counted twice, on disk
  };

  // Changes `choices` when a unit moves; both must outlive it.
  Tally(const World& world, Choices* choices);

  Figures now() const { return figures(loads_, compute_, hops_); }
  Figures after(std::uint32_t unit, Choice choice);
  void move(std::uint32_t unit, Choice choice);

  // Whether the unit is used once; before and after it then come these executors, or none (-1).
  struct Neighbours {
    bool once = false;
    int before = -1;
    int after = -1;
  };
  Neighbours neighbours(std::uint32_t unit) const;

 private:
  struct Load {
    std::uint32_t units = 0;
    Size resident = 0;
    Size from_ram = 0;
    Size from_disk = 0;
    Size read = 0;  // of that, by a pass
    Size piece = 0;
    int copied_calls = 0;
    double compute_here = 0;  // seconds of units whose weights lie there
    double compute = 0;       // of the CPU alone
  };

  Figures figures(const std::vector<Load>& loads, double compute, int hops) const;
  void add(std::uint32_t unit, Choice choice, int sign, std::vector<Load>* loads) const;
  Size piece_of(std::uint32_t unit, std::uint8_t executor) const {
    return copied_piece(world_.units[unit], world_.executors[executor]);
  }
  Size largest_piece(std::size_t executor, std::uint32_t without) const;
  int hops_after(std::uint32_t unit, std::uint8_t executor) const;

  const World& world_;
  Choices& choices_;
  std::vector<Load> loads_;    // by executor
  std::vector<Load> scratch_;  // of the move that is asked about
  std::vector<std::map<Size, std::uint32_t, std::greater<>>> pieces_;  // copied, by executor
  std::vector<std::uint32_t> uses_;       // positions in the order, unit by unit
  std::vector<std::uint32_t> first_use_;  // by unit: where its positions begin; one more at the end
  double compute_ = 0;
  int hops_ = 0;
};

}  // namespace haul::core
