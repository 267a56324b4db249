#pragma once

// Good choices of places for worlds of any size, in about linear time. Each function returns
// nothing when its way of filling does not fit.

#include <optional>
#include <vector>

#include "core/place/world.h"

namespace haul::core {

// Several starting points for the fastest choice; the caller takes the best.
std::vector<Choices> fast_choices(const World& world);

// All weights on GPUs, each with one run of consecutive units: the fullest GPU as empty as that
// allows. With `low_first` the first GPU holds as little as the others leave for it.
std::optional<Choices> balanced_choices(const World& world, bool low_first);

// The first device that still has room, in the order GPUs, RAM, disk. One of the executors, another
// in each result, computes what lies in RAM or on disk and keeps `slots` for it.
std::vector<Choices> sequential_choices(const World& world, int slots);

// Everything on disk, copied to one executor.
std::vector<Choices> all_on_disk(const World& world);

using UnitOrder = std::vector<std::uint32_t>;
// Each unit once, where it is first used.
UnitOrder first_uses(const World& world);
// The GPUs, or where there is none the CPU.
std::vector<std::uint8_t> by_index(const World& world);

}  // namespace haul::core
