#pragma once

// haul's planner on a world: the places that make a pass fastest, or that a mode asks for.

#include <functional>
#include <optional>
#include <vector>

#include "core/place/world.h"
#include "haul/device_map.h"

namespace haul::core {

struct Placement {
  Choices choices;
  Timing timing;
  bool proven = false;  // nothing is better
  double bound = 0;     // nothing is faster than this
};

// Whether the world is small enough to be searched whole: up to 8 units on 4 executors, and others
// with as few possibilities.
bool is_small(const World& world);

// `more` gives choices that the result must not be worse than; it is asked only when they could be
// better. Nothing when nothing is found to fit; for a small world that is proven.
std::optional<Placement> place(const World& world, MapMode mode,
                               const std::function<std::vector<Choices>()>& more = {});

}  // namespace haul::core
