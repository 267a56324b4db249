#pragma once

// Small changes that make a choice of places better, or tidier at the same figures.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/place/world.h"

namespace haul::core {

// Moves single units while that makes the pass faster, and then takes units off disk and RAM where
// it costs no time. `tries` bounds the moves looked at.
void improve(const World& world, Choices* choices, std::size_t tries);

// Equal units trade places so that each executor has its work in one run, where that saves hops.
void gather_runs(const World& world, const UnitKinds& kinds, Choices* choices);

// Among equal units of a row on one executor, those that are copied lie evenly between the others,
// so that there is always work to hide a copy behind: as many together as the executor's slots
// hold, which are copied ahead all the same. Changes no figure.
void spread_evenly(const World& world, const UnitKinds& kinds, const std::vector<int>& slots,
                   Choices* choices);

}  // namespace haul::core
