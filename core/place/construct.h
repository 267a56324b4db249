#pragma once

// Good choices of places for worlds of any size, in about linear time.

#include <optional>
#include <vector>

#include "core/place/best.h"

namespace haul::core {

// Everything on GPUs (or, without one, on the CPU), filled by number, where that can fit.
void offer_resident(const World& world, Best* best);
// Several starting points for the fastest choice, until one is proven to be the best.
void offer_fast(const World& world, Best* best);

// All weights on GPUs, each with one run of consecutive units: the fullest GPU as empty as that
// allows. With `low_first` the first GPU holds as little as the others leave for it.
std::optional<Choices> balanced_choices(const World& world, bool low_first);

// The first device that still has room, in the order GPUs, RAM, disk. The executor `target`
// computes what lies in RAM or on disk and keeps `slots` for it. Units with pieces over the limit
// come first, so that they need not be copied and slots can be small.
Choices sequential_choices(const World& world, int slots, std::uint8_t target,
                           Size limit = kNoLimit);
// No limit, and the piece that most of the model is made of.
std::vector<Size> piece_limits(const World& world);

// Everything on disk, copied to one executor.
std::vector<Choices> all_on_disk(const World& world);

using UnitOrder = std::vector<std::uint32_t>;
// Each unit once, where it is first used: the world's order where no unit comes again, else what is
// written into `room`.
const UnitOrder& first_uses(const World& world, UnitOrder* room);
// The GPUs, or where there is none the CPU.
std::vector<std::uint8_t> by_index(const World& world);

}  // namespace haul::core
