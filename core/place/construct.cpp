#include "core/place/construct.h"

#include <algorithm>
#include <numeric>

namespace haul::core {
namespace {

using Order = std::vector<std::uint32_t>;

// Each unit once, where it is first used.
Order first_uses(const World& world) {
  Order result;
  std::vector<bool> seen(world.units.size());
  for (const std::uint32_t u : world.order) {
    if (!seen[u]) result.push_back(u);
    seen[u] = true;
  }
  return result;
}

// Takes a share of a sequence, spread evenly by bytes.
class Spread {
 public:
  Spread(Size wanted, Size total)
      : share_(total > 0 ? static_cast<double>(wanted) / static_cast<double>(total) : 0) {}

  bool take(Size bytes) {
    const double size = static_cast<double>(bytes);
    due_ += share_ * size;
    if (share_ <= 0 || due_ < size / 2) return false;
    due_ -= size;
    return true;
  }

 private:
  double share_;
  double due_ = 0;
};

struct Recipe {
  std::vector<std::uint8_t> gpus;  // in the order of filling
  int slots = 0;                   // kept on each of them
  std::size_t on_cpu = 0;          // units at the start that the CPU computes
  bool lookups_on_cpu = false;     // and units of which little is touched
};

class Filler {
 public:
  Filler(const World& world, const Order& units, const Recipe& recipe)
      : world_(world), units_(units), recipe_(recipe), choices_(world.units.size()) {
    free_.resize(world.executors.size());
    for (std::size_t e = 0; e < free_.size(); ++e) {
      free_[e] = world.executors[e].capacity - world.executors[e].fixed;
    }
    ram_ = world.ram;
  }

  Choices run() {
    take_cpu_part();
    keep_slots();
    fill_gpus();
    fill_gaps();
    store_the_rest();
    return std::move(choices_);
  }

 private:
  bool is_lookup(const Unit& unit) const { return unit.touched * 4 < unit.weights; }

  void take_cpu_part() {
    const bool can = world_.computes_on_cpu() && world_.has_gpu();
    const auto cpu = static_cast<std::uint8_t>(world_.executors.size() - 1);
    for (std::size_t i = 0; i < units_.size(); ++i) {
      const Unit& unit = world_.units[units_[i]];
      const bool wanted = i < recipe_.on_cpu || (recipe_.lookups_on_cpu && is_lookup(unit));
      if (can && wanted && unit.weights + unit.extra <= std::min(ram_, free_[cpu])) {
        choices_[units_[i]] = {cpu, Store::kHere};
        ram_ -= unit.weights + unit.extra;
        free_[cpu] -= unit.weights + unit.extra;
      } else {
        rest_.push_back(units_[i]);
      }
    }
  }

  void keep_slots() {
    Size piece = 0;
    for (const std::uint32_t u : rest_) piece = std::max(piece, world_.units[u].piece);
    for (const std::uint8_t e : recipe_.gpus) free_[e] -= recipe_.slots * piece;
  }

  // Each GPU takes one run of units: as many as it holds, and its link's share of those that no
  // GPU holds, spread between them.
  void fill_gpus() {
    std::vector<std::uint8_t> gpus;
    for (const std::uint8_t e : recipe_.gpus) {
      if (free_[e] >= 0) gpus.push_back(e);
    }
    if (gpus.empty()) gpus = recipe_.gpus;
    Size room = 0;
    Size needed = 0;
    double links = 0;
    for (const std::uint8_t e : gpus) {
      if (world_.executors[e].holds_weights) room += std::max<Size>(0, free_[e]);
      links += world_.executors[e].link;
    }
    for (const std::uint32_t u : rest_) needed += world_.units[u].weights + world_.units[u].extra;
    const Size away = std::max<Size>(0, needed - room);
    const auto share = [&](std::uint8_t e) {
      const double part = links > 0 ? world_.executors[e].link / links : 1;
      return static_cast<Size>(static_cast<double>(away) * part);
    };
    std::size_t at = 0;
    Size streamed = 0;
    Spread spread(share(gpus[0]), share(gpus[0]) + std::max<Size>(0, free_[gpus[0]]));
    for (const std::uint32_t u : rest_) {
      const Unit& unit = world_.units[u];
      bool here = !spread.take(unit.weights);
      while (here) {
        const std::uint8_t e = gpus[at];
        if (world_.executors[e].holds_weights && unit.weights + unit.extra <= free_[e]) break;
        if (streamed + unit.weights / 2 < share(e) || at + 1 == gpus.size()) {
          here = false;
        } else {
          ++at;
          streamed = 0;
          spread = Spread(share(gpus[at]), share(gpus[at]) + std::max<Size>(0, free_[gpus[at]]));
        }
      }
      const std::uint8_t e = gpus[at];
      choices_[u] = {e, here ? Store::kHere : Store::kDisk};
      free_[e] -= unit.extra + (here ? unit.weights : 0);
      streamed += here ? 0 : unit.weights;
    }
  }

  // Small units go where room was left over.
  void fill_gaps() {
    for (const std::uint32_t u : rest_) {
      if (choices_[u].store == Store::kHere) continue;
      const Unit& unit = world_.units[u];
      const auto fits = [&](std::uint8_t e) {
        return unit.weights + (e == choices_[u].executor ? 0 : unit.extra) <= free_[e];
      };
      std::optional<std::uint8_t> place;
      if (fits(choices_[u].executor)) place = choices_[u].executor;
      for (const std::uint8_t e : recipe_.gpus) {
        if (!place && fits(e)) place = e;
      }
      if (!place || !world_.executors[*place].holds_weights) continue;
      free_[choices_[u].executor] += unit.extra;
      free_[*place] -= unit.extra + unit.weights;
      choices_[u] = {*place, Store::kHere};
    }
  }

  void store_the_rest() {
    Size bytes = 0;
    for (const std::uint32_t u : rest_) {
      if (choices_[u].store != Store::kHere) bytes += world_.units[u].weights;
    }
    Spread on_disk(std::max<Size>(0, bytes - ram_), bytes);
    const auto keep_in_ram = [&](std::uint32_t u) {
      if (world_.executors[choices_[u].executor].link == 0) return;
      if (world_.units[u].weights > ram_) return;
      choices_[u].store = Store::kRam;
      ram_ -= world_.units[u].weights;
    };
    for (const std::uint32_t u : rest_) {
      if (choices_[u].store == Store::kHere) continue;
      if (!on_disk.take(world_.units[u].weights)) keep_in_ram(u);
    }
    for (const std::uint32_t u : rest_) {
      if (choices_[u].store == Store::kDisk) keep_in_ram(u);
    }
  }

  const World& world_;
  const Order& units_;
  const Recipe& recipe_;
  Choices choices_;
  Order rest_;
  std::vector<Size> free_;
  Size ram_ = 0;
};

// How many units the CPU should compute: more lengthens the chain and shortens the copies, so the
// best is where the two meet.
void add_best_cpu_share(const World& world, const Order& units, Recipe recipe,
                        std::vector<Choices>* out) {
  const auto try_count = [&](std::size_t count) {
    recipe.on_cpu = count;
    out->push_back(Filler(world, units, recipe).run());
    return predict(world, out->back());
  };
  const auto copies = [](const Timing& timing) {
    double longest = timing.disk;
    for (const double link : timing.link) longest = std::max(longest, link);
    return longest;
  };
  const Timing none = try_count(0);
  if (!world.computes_on_cpu() || !world.has_gpu()) return;
  if (none.fits && copies(none) == 0) return;
  std::size_t low = 0;
  std::size_t high = units.size();
  while (high - low > 1) {
    const std::size_t middle = low + (high - low) / 2;
    const Timing timing = try_count(middle);
    const bool more =
        recipe.slots == 0 ? copies(timing) > 0 : !timing.fits || copies(timing) > timing.chain;
    (more ? low : high) = middle;
    // Only the last few attempts matter; the rest need not be kept.
    if (high - low > 4) out->pop_back();
  }
  try_count(high);
}

std::vector<std::uint8_t> by_index(const World& world) {
  std::vector<std::uint8_t> result;
  for (std::size_t e = 0; e < world.executors.size(); ++e) {
    if (world.executors[e].device.is_accelerator()) result.push_back(static_cast<std::uint8_t>(e));
  }
  if (result.empty()) result.push_back(0);
  return result;
}

std::vector<std::vector<std::uint8_t>> filling_orders(const World& world) {
  constexpr std::size_t kManyUnits = 2000;
  std::vector<std::vector<std::uint8_t>> result{by_index(world)};
  const std::vector<std::uint8_t> index = result.front();
  const auto add = [&](const std::vector<std::uint8_t>& order) {
    if (std::find(result.begin(), result.end(), order) == result.end()) result.push_back(order);
  };
  std::vector<std::uint8_t> largest = index;
  std::stable_sort(largest.begin(), largest.end(), [&](std::uint8_t a, std::uint8_t b) {
    return world.executors[a].capacity > world.executors[b].capacity;
  });
  add(largest);
  std::vector<std::uint8_t> fastest = index;
  std::stable_sort(fastest.begin(), fastest.end(), [&](std::uint8_t a, std::uint8_t b) {
    return world.executors[a].bandwidth > world.executors[b].bandwidth;
  });
  add(fastest);
  if (world.units.size() > kManyUnits) return result;
  for (const std::uint8_t e : index) {
    if (world.executors[e] == world.executors[index.front()]) continue;
    add({e});
  }
  return result;
}

}  // namespace

std::vector<Choices> fast_choices(const World& world) {
  std::vector<Choices> result;
  if (world.executors.empty() || world.units.empty()) return result;
  const Order units = first_uses(world);
  const bool cpu_helps = world.computes_on_cpu() && world.has_gpu();
  for (const auto& gpus : filling_orders(world)) {
    result.push_back(Filler(world, units, {gpus, 0, 0, false}).run());
    const Timing resident = predict(world, result.back());
    // Everything lies on GPUs: nothing else in this order can be faster.
    if (resident.fits && resident.disk_used == 0 && resident.ram_used == 0) continue;
    for (const int slots : {0, 2, 1}) {
      add_best_cpu_share(world, units, {gpus, slots, 0, false}, &result);
      if (cpu_helps) add_best_cpu_share(world, units, {gpus, slots, 0, true}, &result);
    }
  }
  return result;
}

namespace {

// Units in order, each GPU up to its limit of weights; nothing when something is left over.
std::optional<Choices> fill_runs(const World& world, const Order& units,
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
  const Order units = first_uses(world);
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

std::vector<Choices> sequential_choices(const World& world) {
  std::vector<Choices> result;
  if (world.executors.empty()) return result;
  const Order units = first_uses(world);
  const std::vector<std::uint8_t> gpus = by_index(world);
  // What no GPU holds is computed by one of the executors, which keeps slots for it.
  for (const int slots : {0, 2, 1}) {
    for (std::uint8_t target = 0; target < world.executors.size(); ++target) {
      std::vector<Size> free;
      Size piece = 0;
      for (const Executor& e : world.executors) free.push_back(e.capacity - e.fixed);
      for (const Unit& unit : world.units) piece = std::max(piece, unit.piece);
      const bool on_cpu = world.executors[target].link == 0;
      free[target] -= slots * piece;
      Size ram = world.ram - (on_cpu ? slots * piece + world.executors[target].fixed : 0);
      Choices choices(world.units.size());
      for (const std::uint32_t u : units) {
        const Unit& unit = world.units[u];
        bool placed = false;
        for (const std::uint8_t e : gpus) {
          if (placed || !world.executors[e].holds_weights || unit.weights + unit.extra > free[e]) {
            continue;
          }
          choices[u] = {e, Store::kHere};
          free[e] -= unit.weights + unit.extra;
          if (!world.executors[e].device.is_accelerator()) ram -= unit.weights + unit.extra;
          placed = true;
        }
        if (placed) continue;
        choices[u] = {target, Store::kDisk};
        free[target] -= unit.extra;
        if (unit.weights <= ram) {
          choices[u].store = on_cpu ? Store::kHere : Store::kRam;
          ram -= unit.weights;
        }
      }
      result.push_back(std::move(choices));
    }
  }
  return result;
}

std::vector<Choices> all_on_disk(const World& world) {
  std::vector<Choices> result;
  for (std::uint8_t e = 0; e < world.executors.size(); ++e) {
    result.emplace_back(world.units.size(), Choice{e, Store::kDisk});
  }
  return result;
}

void improve(const World& world, Choices* choices, std::size_t tries) {
  const std::vector<Choice> options = allowed_choices(world);
  Timing best = predict(world, *choices);
  const auto away = [&](const Timing& timing) { return timing.ram_used + 2 * timing.disk_used; };
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
            timing.fits && timing.seconds == best.seconds && away(timing) < away(best);
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

}  // namespace haul::core
