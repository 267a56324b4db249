#include "core/place/place.h"

#include <cmath>

#include "core/place/best.h"
#include "core/place/construct.h"
#include "core/place/polish.h"
#include "core/place/search.h"

namespace haul::core {
namespace {

constexpr std::size_t kMoves = 10'000;  // that improve() may look at

void offer_sequential(const World& world, int slots, Size limit, Best* best) {
  for (std::uint8_t target = 0; target < world.executors.size() && !best->proven(); ++target) {
    best->offer(sequential_choices(world, slots, target, limit));
  }
}

// In this order because the first ones are often as fast as anything can be.
std::optional<Choices> fastest(const World& world, double bound,
                               const std::function<std::vector<Choices>()>& more) {
  Best best(world, bound);
  offer_resident(world, &best);
  offer_sequential(world, 2, kNoLimit, &best);
  if (!best.proven()) {
    const Size limit = piece_limits(world).back();
    if (limit < kNoLimit) offer_sequential(world, 2, limit, &best);
  }
  if (!best.proven()) offer_fast(world, &best);
  for (const int slots : {0, 1}) {
    if (!best.proven()) offer_sequential(world, slots, kNoLimit, &best);
  }
  if (!best.choices()) {
    for (Choices& choices : all_on_disk(world)) best.offer(std::move(choices));
  }
  if (!best.proven() && more) {
    for (Choices& choices : more()) best.offer(std::move(choices));
  }
  std::optional<Choices> result = best.choices();
  if (result && !best.proven()) improve(world, &*result, kMoves);
  return result;
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

std::optional<Placement> place(const World& world, MapMode mode,
                               const std::function<std::vector<Choices>()>& more) {
  const UnitKinds kinds = kinds_of(world);
  const double bound = lower_bound(world, kinds);
  std::optional<Choices> best;
  if (mode == MapMode::kSequential) {
    Best first(world, bound);
    for (const int slots : {0, 2, 1}) {
      if (!first.choices()) offer_sequential(world, slots, kNoLimit, &first);
    }
    best = first.choices();
  } else if (mode != MapMode::kAuto) {
    best = balanced_choices(world, mode == MapMode::kBalancedLow0);
    if (best && !predict(world, *best).fits) best.reset();
  }
  if (!best) best = fastest(world, bound, more);
  bool searched = false;
  if (is_small(world) && (mode != MapMode::kSequential || !best)) {
    best = search_exactly(world, goal_of(mode), std::move(best));
    searched = true;
  }
  if (!best) return std::nullopt;
  if (mode != MapMode::kSequential) gather_runs(world, kinds, &*best);
  Placement result{std::move(*best), {}, searched, bound};
  result.timing = predict(world, result.choices);
  if (mode != MapMode::kSequential) {
    spread_evenly(world, kinds, result.timing.slots, &result.choices);
  }
  if (mode == MapMode::kAuto && meets(result.timing.seconds, bound)) result.proven = true;
  return result;
}

}  // namespace haul::core
