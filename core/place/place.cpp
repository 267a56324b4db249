#include "core/place/place.h"

#include <cmath>

#include "core/place/construct.h"
#include "core/place/polish.h"
#include "core/place/search.h"

namespace haul::core {
namespace {

// Predictions that improve() may make, by their cost.
std::size_t tries(const World& world) {
  constexpr std::size_t kUnitVisits = 100'000;
  return kUnitVisits / (world.units.size() + 1);
}

// Of equally fast ones the one with the fewest hops.
std::optional<Choices> fastest_of(const World& world, const std::vector<Choices>& candidates) {
  constexpr double kRounding = 1e-9;
  const Choices* best = nullptr;
  double seconds = 0;
  int hops = 0;
  for (const Choices& candidate : candidates) {
    const Timing timing = predict(world, candidate);
    if (!timing.fits) continue;
    const double margin = kRounding * seconds;
    const bool faster = timing.seconds < seconds - margin;
    const bool simpler = timing.seconds <= seconds + margin && timing.hops < hops;
    if (best != nullptr && !faster && !simpler) continue;
    best = &candidate;
    seconds = timing.seconds;
    hops = timing.hops;
  }
  if (best == nullptr) return std::nullopt;
  return *best;
}

std::optional<Choices> fastest(const World& world, std::vector<Choices> candidates) {
  for (Choices& choices : fast_choices(world)) candidates.push_back(std::move(choices));
  for (const int slots : {0, 2, 1}) {
    for (Choices& choices : sequential_choices(world, slots)) {
      candidates.push_back(std::move(choices));
    }
  }
  for (Choices& choices : all_on_disk(world)) candidates.push_back(std::move(choices));
  std::optional<Choices> best = fastest_of(world, candidates);
  if (best) improve(world, &*best, tries(world));
  return best;
}

Goal goal_of(MapMode mode) {
  if (mode == MapMode::kBalanced) return Goal::kBalanced;
  if (mode == MapMode::kBalancedLow0) return Goal::kLowFirst;
  return Goal::kFastest;
}

}  // namespace

bool is_small(const World& world) {
  constexpr double kPossibilities = 2e7;
  const double options = static_cast<double>(allowed_choices(world).size());
  return (world.units.size() <= 8 && world.executors.size() <= 4) ||
         std::pow(options, static_cast<double>(world.units.size())) <= kPossibilities;
}

std::optional<Placement> place(const World& world, MapMode mode, std::vector<Choices> more) {
  std::optional<Choices> best;
  if (mode == MapMode::kSequential) {
    best = fastest_of(world, sequential_choices(world, 0));
    for (const int slots : {2, 1}) {
      if (!best) best = fastest_of(world, sequential_choices(world, slots));
    }
  } else if (mode != MapMode::kAuto) {
    best = balanced_choices(world, mode == MapMode::kBalancedLow0);
    if (best && !predict(world, *best).fits) best.reset();
  }
  if (!best) best = fastest(world, std::move(more));
  bool exact = false;
  if (is_small(world) && (mode != MapMode::kSequential || !best)) {
    best = search_exactly(world, goal_of(mode), std::move(best));
    exact = true;
  }
  if (!best) return std::nullopt;
  if (mode != MapMode::kSequential) {
    gather_runs(world, &*best);
    spread_evenly(world, &*best);
  }
  return Placement{*best, predict(world, *best), exact};
}

}  // namespace haul::core
