#pragma once

// haul's planner on a world: the places that make a pass fastest, or that a mode asks for.

#include <optional>
#include <vector>

#include "core/place/world.h"
#include "haul/device_map.h"

namespace haul::core {

struct Placement {
  Choices choices;
  Timing timing;
  bool exact = false;  // proven to be the best; else lower_bound(world) says how far it can be
};

// Whether the world is small enough to be searched whole: up to 8 units on 4 executors, and others
// with as few possibilities.
bool is_small(const World& world);

// `more` are choices that the result must not be worse than. Nothing when nothing is found to fit;
// for a small world that is proven.
std::optional<Placement> place(const World& world, MapMode mode, std::vector<Choices> more = {});

}  // namespace haul::core
