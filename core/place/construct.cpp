#include "core/place/construct.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

namespace haul::core {
namespace {

// Worlds with more units are filled with fewer attempts.
constexpr std::size_t kManyUnits = 256;

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

// Of which a pass touches little.
bool is_lookup(const Unit& unit) {
  return unit.touched < unit.weights / 4;
}

// What the CPU computes beside the first units.
enum class Besides : std::uint8_t {
  kNothing,
  kLookups,          // units of which little is touched
  kLookupsAndLarge,  // and those with pieces too large to be copied
};

struct Recipe {
  std::vector<std::uint8_t> gpus;  // in the order of filling
  int slots = 0;                   // kept on each of them
  Size piece = kNoLimit;           // units with larger pieces are not copied, so slots stay small
  std::size_t on_cpu = 0;          // units at the start that the CPU computes
  Besides besides = Besides::kNothing;
  bool looks_up = false;  // rows of tables that lie on disk
};

class Filler {
 public:
  Filler(const World& world, const UnitOrder& units, const Recipe& recipe)
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
  void take_cpu_part() {
    const bool can = world_.computes_on_cpu() && world_.has_gpu();
    const auto cpu = static_cast<std::uint8_t>(world_.executors.size() - 1);
    for (std::size_t i = 0; i < units_.size(); ++i) {
      const Unit& unit = world_.units[units_[i]];
      if (recipe_.looks_up && unit.rows > 0) {
        choices_[units_[i]] = {cpu, Store::kDisk};
        ram_ -= unit.extra;
        free_[cpu] -= unit.extra;
        continue;
      }
      const bool wanted =
          i < recipe_.on_cpu || (recipe_.besides != Besides::kNothing && is_lookup(unit)) ||
          (recipe_.besides == Besides::kLookupsAndLarge && unit.piece > recipe_.piece);
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
    for (const std::uint32_t u : rest_) {
      if (world_.units[u].piece <= recipe_.piece) piece = std::max(piece, world_.units[u].piece);
    }
    for (const std::uint8_t e : recipe_.gpus) free_[e] -= recipe_.slots * piece;
  }

  // Each GPU takes one run of units: as many as it holds, and its link's share of those that no
  // GPU holds, spread between them. How much that is shows only when whole units have been placed.
  void fill_gpus() {
    std::vector<std::uint8_t> gpus;
    for (const std::uint8_t e : recipe_.gpus) {
      if (free_[e] >= 0) gpus.push_back(e);
    }
    if (gpus.empty()) gpus = recipe_.gpus;
    pin_large_pieces(gpus);
    Size room = 0;
    Size needed = 0;
    for (const std::uint8_t e : gpus) {
      if (world_.executors[e].holds_weights) room += std::max<Size>(0, free_[e]);
    }
    for (const std::uint32_t u : movable_) {
      needed += world_.units[u].weights + world_.units[u].extra;
    }
    // More for the first GPUs leaves less for the last: the best is where their links meet.
    const int rounds = rest_.size() <= kManyUnits ? 8 : 2;
    const std::vector<Size> free = free_;
    Size low = std::max<Size>(0, needed - room);
    Size high = std::min(needed, 2 * low);
    for (int round = 0; round < rounds && low < high; ++round) {
      const Size middle = low + (high - low) / 2;
      free_ = free;
      (fill_runs(gpus, middle) ? low : high) = middle;
    }
    free_ = free;
    fill_runs(gpus, high);
  }

  // Units that are not copied get their room before the others: on the GPU whose turn it is about
  // then.
  void pin_large_pieces(const std::vector<std::uint8_t>& gpus) {
    for (std::size_t i = 0; i < rest_.size(); ++i) {
      const std::uint32_t u = rest_[i];
      const Unit& unit = world_.units[u];
      const std::uint8_t e = gpus[i * gpus.size() / rest_.size()];
      if (unit.piece > recipe_.piece && world_.executors[e].holds_weights &&
          unit.weights + unit.extra <= free_[e]) {
        choices_[u] = {e, Store::kHere};
        free_[e] -= unit.weights + unit.extra;
      } else {
        movable_.push_back(u);
      }
    }
  }

  // Whether the last GPU's link is left with more than its share of `away` bytes.
  bool fill_runs(const std::vector<std::uint8_t>& gpus, Size away) {
    double links = 0;
    for (const std::uint8_t e : gpus) links += world_.executors[e].link;
    const auto share = [&](std::uint8_t e) {
      const double part = links > 0 ? world_.executors[e].link / links : 1;
      return static_cast<Size>(static_cast<double>(away) * part);
    };
    std::size_t at = 0;
    Size streamed = 0;
    // Of units that are still to come, and of which the last GPU computes all: it needs that room
    // wherever their weights lie.
    Size extra = 0;
    for (const std::uint32_t u : movable_) extra += world_.units[u].extra;
    const auto room_on = [&](std::uint8_t e) {
      return free_[e] - (at + 1 == gpus.size() ? extra : 0);
    };
    const auto spread_on = [&](std::uint8_t e) {
      return Spread(share(e), share(e) + std::max<Size>(0, room_on(e)));
    };
    Spread spread = spread_on(gpus[0]);
    for (const std::uint32_t u : movable_) {
      const Unit& unit = world_.units[u];
      bool here = !spread.take(unit.weights);
      while (here) {
        const std::uint8_t e = gpus[at];
        const Size with = at + 1 == gpus.size() ? 0 : unit.extra;
        if (world_.executors[e].holds_weights && unit.weights + with <= room_on(e)) break;
        if (streamed + unit.weights / 2 < share(e) || at + 1 == gpus.size()) {
          here = false;
        } else {
          ++at;
          streamed = 0;
          spread = spread_on(gpus[at]);
        }
      }
      const std::uint8_t e = gpus[at];
      choices_[u] = {e, here ? Store::kHere : Store::kDisk};
      free_[e] -= unit.extra + (here ? unit.weights : 0);
      extra -= unit.extra;
      streamed += here ? 0 : unit.weights;
    }
    return at + 1 == gpus.size() && streamed > share(gpus[at]);
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
  const UnitOrder& units_;
  const Recipe& recipe_;
  Choices choices_;
  UnitOrder rest_;     // without the CPU's part
  UnitOrder movable_;  // and without what is pinned
  std::vector<Size> free_;
  Size ram_ = 0;
};

// How many units the CPU should compute: more lengthens the chain and shortens the copies, so the
// best is where the two meet.
void offer_best_cpu_share(const World& world, const UnitOrder& units, Recipe recipe, Best* best) {
  const auto try_count = [&](std::size_t count) {
    recipe.on_cpu = count;
    return best->offer(Filler(world, units, recipe).run());
  };
  double looked_up = 0;  // seconds of rows, which are no copies
  for (const Unit& unit : world.units) {
    if (recipe.looks_up) looked_up += static_cast<double>(unit.rows) / world.disk_bandwidth;
  }
  const auto copies = [&](const Timing& timing) {
    const double disk = timing.disk - looked_up;
    double longest = disk > kTimeRounding * timing.disk ? disk : 0;
    for (const double link : timing.link) longest = std::max(longest, link);
    return longest;
  };
  const Timing none = try_count(0);
  if (!world.computes_on_cpu() || !world.has_gpu()) return;
  if (none.fits && copies(none) == 0) return;
  std::size_t low = 0;
  std::size_t high = units.size();
  const std::size_t close = units.size() <= kManyUnits ? 1 : units.size() / 100;
  while (high - low > close) {
    const std::size_t middle = low + (high - low) / 2;
    const Timing timing = try_count(middle);
    const bool more =
        recipe.slots == 0 ? copies(timing) > 0 : !timing.fits || copies(timing) > timing.chain;
    (more ? low : high) = middle;
    if (best->proven()) return;
  }
  try_count(high);
}

std::vector<std::vector<std::uint8_t>> filling_orders(const World& world) {
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
    Executor twin = world.executors[index.front()];
    twin.device = world.executors[e].device;
    if (e != index.front() && twin == world.executors[e]) continue;
    add({e});
  }
  return result;
}

// All ways to fill the GPUs in one order.
void offer_recipes(const World& world, const UnitOrder& units,
                   const std::vector<std::uint8_t>& gpus, bool looks_up, Best* best) {
  const bool both = world.computes_on_cpu() && world.has_gpu();
  const bool has_lookups = std::any_of(world.units.begin(), world.units.end(), is_lookup);
  const std::vector<Size> pieces = piece_limits(world);
  for (const int slots : {0, 2, 1}) {
    for (const Size piece : pieces) {
      if (slots == 0 && piece != kNoLimit) continue;
      for (const Besides besides :
           {Besides::kNothing, Besides::kLookups, Besides::kLookupsAndLarge}) {
        if (besides != Besides::kNothing && !both) continue;
        if (besides == Besides::kLookups && !has_lookups) continue;
        if (besides == Besides::kLookupsAndLarge && piece == kNoLimit) continue;
        offer_best_cpu_share(world, units, {gpus, slots, piece, 0, besides, looks_up}, best);
        if (best->proven()) return;
      }
    }
  }
}

}  // namespace

void offer_resident(const World& world, Best* best) {
  if (world.executors.empty() || world.units.empty()) return;
  const std::vector<std::uint8_t> gpus = by_index(world);
  Size left = 0;
  for (const Unit& unit : world.units) left += unit.weights + unit.extra;
  for (const std::uint8_t e : gpus) left -= world.executors[e].capacity - world.executors[e].fixed;
  if (left > 0) return;
  UnitOrder room;
  const UnitOrder& units = first_uses(world, &room);
  best->offer(Filler(world, units, {gpus, 0, kNoLimit}).run());
}

void offer_fast(const World& world, Best* best) {
  if (world.executors.empty() || world.units.empty()) return;
  UnitOrder room;
  const UnitOrder& units = first_uses(world, &room);
  for (const auto& gpus : filling_orders(world)) {
    const Timing resident = best->offer(Filler(world, units, {gpus, 0, kNoLimit}).run());
    // Everything lies on GPUs: nothing else in this order can be faster.
    if (resident.fits && resident.disk_used == 0 && resident.ram_used == 0) continue;
    offer_recipes(world, units, gpus, false, best);
    if (best->proven()) return;
    // Only where memory is so short that something is read from disk in each pass.
    if (!looks_up_tables(world) || (best->choices() && !best->reads_disk())) continue;
    offer_recipes(world, units, gpus, true, best);
    if (best->proven()) return;
  }
}

}  // namespace haul::core
