#include "core/place/polish.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "core/place/construct.h"

namespace haul::core {

void improve(const World& world, Choices* choices, std::size_t tries) {
  const std::vector<Choice> options = allowed_choices(world);
  Timing best = predict(world, *choices);
  // Of equally fast choices the one with fewer hops, then the one with less away from GPUs.
  const auto second = [](const Timing& timing) {
    return std::pair(timing.hops, timing.ram_used + 2 * timing.disk_used);
  };
  bool moved = true;
  while (moved) {
    moved = false;
    for (std::size_t u = 0; u < choices->size(); ++u) {
      for (const Choice option : options) {
        if (option == (*choices)[u]) continue;
        if (tries-- == 0) return;
        const Choice before = (*choices)[u];
        (*choices)[u] = option;
        Timing timing = predict(world, *choices);
        const bool faster = timing.fits && (!best.fits || timing.seconds < best.seconds);
        const bool nearer =
            timing.fits && timing.seconds == best.seconds && second(timing) < second(best);
        if (faster || nearer) {
          best = std::move(timing);
          moved = true;
        } else {
          (*choices)[u] = before;
        }
      }
    }
  }
}

void gather_runs(const World& world, Choices* choices) {
  const UnitOrder units = first_uses(world);
  const auto weigh = [&](std::uint32_t u) {
    const Unit& unit = world.units[u];
    return std::tuple(unit.weights, unit.touched, unit.piece, unit.extra, unit.operations);
  };
  std::map<decltype(weigh(0)), UnitOrder> equal;
  for (const std::uint32_t u : units) equal[weigh(u)].push_back(u);
  Timing best = predict(world, *choices);
  for (const bool cpu_first : {true, false}) {
    const auto rank = [&](Choice choice) {
      const bool cpu = world.executors[choice.executor].device == kCpuDevice;
      return cpu && cpu_first ? -1 : static_cast<int>(choice.executor);
    };
    Choices gathered = *choices;
    for (const auto& [kind, members] : equal) {
      Choices part;
      for (const std::uint32_t u : members) part.push_back((*choices)[u]);
      std::stable_sort(part.begin(), part.end(),
                       [&](Choice a, Choice b) { return rank(a) < rank(b); });
      for (std::size_t i = 0; i < members.size(); ++i) gathered[members[i]] = part[i];
    }
    Timing timing = predict(world, gathered);
    if (!timing.fits || timing.hops >= best.hops) continue;
    best = std::move(timing);
    *choices = std::move(gathered);
  }
}

void spread_evenly(const World& world, Choices* choices) {
  const UnitOrder units = first_uses(world);
  std::size_t begin = 0;
  while (begin < units.size()) {
    const Unit& unit = world.units[units[begin]];
    const std::uint8_t executor = (*choices)[units[begin]].executor;
    std::array<double, 3> count{};
    std::size_t end = begin;
    while (end < units.size() && world.units[units[end]] == unit &&
           (*choices)[units[end]].executor == executor) {
      ++count[static_cast<std::size_t>((*choices)[units[end++]].store)];
    }
    // At each place the kind that is furthest behind its share.
    const double total = static_cast<double>(end - begin);
    std::array<double, 3> given{};
    for (std::size_t i = begin; i < end; ++i) {
      std::size_t furthest = 0;
      double most = -1;
      for (std::size_t kind = 0; kind < count.size(); ++kind) {
        const double due = count[kind] * (static_cast<double>(i - begin) + 1) / total;
        const double behind = given[kind] < count[kind] ? due - given[kind] : -2;
        if (behind > most) {
          most = behind;
          furthest = kind;
        }
      }
      ++given[furthest];
      (*choices)[units[i]].store = static_cast<Store>(furthest);
    }
    begin = end;
  }
}

}  // namespace haul::core
