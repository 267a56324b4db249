#pragma once

// The best choice of places for a world of few units, by branch and bound: exact, and exponential
// in the worst case. The slow reference in tests/support tries everything instead.

#include <array>
#include <optional>

#include "core/place/world.h"

namespace haul::core {

enum class Goal : std::uint8_t {
  kFastest,
  kBalanced,  // least offloaded, then the fullest GPU as empty as can be, then fastest
  kLowFirst,  // least offloaded, then the first GPU as empty as can be, then as kBalanced
};

// Smaller is better, the first difference decides.
using Score = std::array<double, 4>;
Score score(const World& world, const Choices& choices, const Timing& timing, Goal goal);

// Better than `best` where there is such a choice, else `best`; nothing when nothing fits.
std::optional<Choices> search_exactly(const World& world, Goal goal, std::optional<Choices> best);

}  // namespace haul::core
