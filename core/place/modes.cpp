#include <algorithm>
#include <map>

#include "core/place/construct.h"

namespace haul::core {

const UnitOrder& first_uses(const World& world, UnitOrder* room) {
  if (world.order.size() == world.units.size()) return world.order;
  room->clear();
  std::vector<bool> seen(world.units.size());
  for (const std::uint32_t u : world.order) {
    if (!seen[u]) room->push_back(u);
    seen[u] = true;
  }
  return *room;
}

std::vector<std::uint8_t> by_index(const World& world) {
  std::vector<std::uint8_t> result;
  for (std::size_t e = 0; e < world.executors.size(); ++e) {
    if (world.executors[e].device.is_accelerator()) result.push_back(static_cast<std::uint8_t>(e));
  }
  if (result.empty()) result.push_back(0);
  return result;
}

std::vector<Size> piece_limits(const World& world) {
  std::map<Size, Size> weights;
  auto last = weights.end();
  for (const Unit& unit : world.units) {
    if (last == weights.end() || last->first != unit.piece) {
      last = weights.try_emplace(unit.piece, 0).first;
    }
    last->second += unit.weights;
  }
  const auto common =
      std::max_element(weights.begin(), weights.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (common == weights.end() || common->first == weights.rbegin()->first) return {kNoLimit};
  return {kNoLimit, common->first};
}

namespace {

// Units in order, each GPU up to its limit of weights; nothing when something is left over.
std::optional<Choices> fill_runs(const World& world, const UnitOrder& units,
                                 const std::vector<std::uint8_t>& gpus,
                                 const std::vector<Size>& limits) {
  Choices choices(world.units.size());
  std::size_t at = 0;
  Size weights = 0;
  Size used = world.executors[gpus[0]].fixed;
  for (const std::uint32_t u : units) {
    const Unit& unit = world.units[u];
    while (weights + unit.weights > limits[at] ||
           used + unit.weights + unit.extra > world.executors[gpus[at]].capacity) {
      if (++at == gpus.size()) return std::nullopt;
      weights = 0;
      used = world.executors[gpus[at]].fixed;
    }
    weights += unit.weights;
    used += unit.weights + unit.extra;
    choices[u] = {gpus[at], Store::kHere};
  }
  return choices;
}

// The smallest limit in [low, high] for which `fill` succeeds, and its result.
template <typename Fill>
std::optional<Choices> smallest_limit(Size low, Size high, Fill fill, Size* limit) {
  std::optional<Choices> best = fill(high);
  if (!best) return best;
  while (low < high) {
    const Size middle = low + (high - low) / 2;
    if (auto found = fill(middle)) {
      best = std::move(found);
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  *limit = high;
  return best;
}

}  // namespace

std::optional<Choices> balanced_choices(const World& world, bool low_first) {
  if (!world.has_gpu()) return std::nullopt;
  UnitOrder room;
  const UnitOrder& units = first_uses(world, &room);
  const std::vector<std::uint8_t> gpus = by_index(world);
  Size total = 0;
  for (const Unit& unit : world.units) total += unit.weights;
  Size first = total;
  if (low_first && gpus.size() > 1) {
    const auto with_first = [&](Size limit) {
      std::vector<Size> limits(gpus.size(), total);
      limits[0] = limit;
      return fill_runs(world, units, gpus, limits);
    };
    if (!smallest_limit(0, total, with_first, &first)) return std::nullopt;
  }
  Size fullest = 0;
  return smallest_limit(
      0, total,
      [&](Size limit) {
        std::vector<Size> limits(gpus.size(), limit);
        if (low_first && gpus.size() > 1) limits[0] = first;
        return fill_runs(world, units, gpus, limits);
      },
      &fullest);
}

Choices sequential_choices(const World& world, int slots, std::uint8_t target, Size limit) {
  Choices choices(world.units.size());
  std::vector<std::uint8_t> gpus = by_index(world);
  std::erase_if(gpus, [&](std::uint8_t e) { return !world.executors[e].holds_weights; });
  Size piece = 0;
  for (const Unit& unit : world.units) {
    const Size own = copied_piece(unit, world.executors[target]);
    if (own <= limit) piece = std::max(piece, own);
  }
  std::vector<Size> free;
  for (const Executor& e : world.executors) free.push_back(e.capacity - e.fixed);
  const bool on_cpu = world.executors[target].link == 0;
  free[target] -= slots * piece;
  Size ram = world.ram - (on_cpu ? slots * piece + world.executors[target].fixed : 0);
  UnitOrder room;
  const UnitOrder* units = &first_uses(world, &room);
  if (limit < kNoLimit) {
    if (units != &room) room = *units;
    std::stable_partition(room.begin(), room.end(),
                          [&](std::uint32_t u) { return world.units[u].piece > limit; });
    units = &room;
  }
  for (const std::uint32_t u : *units) {
    const Unit& unit = world.units[u];
    const Size needed = unit.weights + unit.extra;
    std::size_t at = 0;
    while (at < gpus.size() && needed > free[gpus[at]]) ++at;
    if (at < gpus.size()) {
      choices[u] = {gpus[at], Store::kHere};
      free[gpus[at]] -= needed;
      if (!world.has_gpu()) ram -= needed;
      continue;
    }
    choices[u] = {target, Store::kDisk};
    free[target] -= unit.extra;
    if (unit.weights <= ram) {
      choices[u].store = on_cpu ? Store::kHere : Store::kRam;
      ram -= unit.weights;
    }
  }
  return choices;
}

std::vector<Choices> all_on_disk(const World& world) {
  std::vector<Choices> result;
  for (std::size_t e = 0; e < world.executors.size(); ++e) {
    result.emplace_back(world.units.size(), Choice{static_cast<std::uint8_t>(e), Store::kDisk});
  }
  return result;
}

}  // namespace haul::core
