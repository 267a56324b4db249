#include "core/place/polish.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "core/place/construct.h"
#include "core/place/tally.h"

namespace haul::core {

namespace {

// Units that are equal, look the same to their neighbours and were tried in vain need no new try.
class Tried {
 public:
  Tried(const World& world, const Choices& choices, const Tally& tally)
      : world_(world), choices_(choices), tally_(tally) {}

  // Forgets everything.
  void clear() { ++round_; }

  bool before(std::uint32_t unit) {
    const Tally::Neighbours beside = tally_.neighbours(unit);
    if (!beside.once) return false;
    const Choice choice = choices_[unit];
    std::size_t place = static_cast<std::size_t>(world_.units[unit].weights) * 31 + choice.executor;
    place = (place * 4 + static_cast<std::size_t>(choice.store)) * 0x9E3779B97F4A7C15U;
    Entry& entry = entries_[place >> 58];
    const bool same = entry.round == round_ && choices_[entry.unit] == choice &&
                      entry.before == beside.before && entry.after == beside.after &&
                      world_.units[entry.unit] == world_.units[unit];
    entry = {round_, unit, beside.before, beside.after};
    return same;
  }

 private:
  struct Entry {
    std::uint32_t round = 0;
    std::uint32_t unit = 0;
    int before = -1;
    int after = -1;
  };

  const World& world_;
  const Choices& choices_;
  const Tally& tally_;
  std::uint32_t round_ = 1;
  std::array<Entry, 64> entries_{};
};

// Of equally fast choices the one with fewer hops, then the one with less away from GPUs.
bool better(const Tally::Figures& a, const Tally::Figures& b) {
  if (!a.fits || !b.fits) return a.fits;
  if (a.seconds < b.seconds * (1 - kTimeRounding)) return true;
  return a.seconds <= b.seconds && std::pair(a.hops, a.away) < std::pair(b.hops, b.away);
}

}  // namespace

void improve(const World& world, Choices* choices, std::size_t tries) {
  const std::vector<Choice> options = allowed_choices(world);
  Tally tally(world, choices);
  Tried tried(world, *choices, tally);
  Tally::Figures best = tally.now();
  bool moved = true;
  while (moved) {
    moved = false;
    for (std::uint32_t u = 0; u < choices->size(); ++u) {
      if (tried.before(u)) continue;
      for (const Choice option : options) {
        if (option == (*choices)[u]) continue;
        if (tries-- == 0) return;
        const Tally::Figures figures = tally.after(u, option);
        if (!better(figures, best)) continue;
        tally.move(u, option);
        tried.clear();
        best = figures;
        moved = true;
      }
    }
  }
}

namespace {

// The choices of equal units, those of each executor together, in the order of `ranks`.
Choices gathered(const World& world, const Choices& choices, const UnitKinds& kinds,
                 const std::vector<std::size_t>& ranks) {
  UnitOrder room;
  const UnitOrder& units = first_uses(world, &room);
  // Rows of units with the same kind and rank are moved together.
  struct Row {
    std::uint32_t kind;
    std::size_t slot;  // by kind and rank
    std::size_t begin;
    std::size_t end;
  };
  const std::size_t width = ranks.size();
  std::vector<Row> rows;
  std::vector<std::uint32_t> next(kinds.count * width + 1);  // by slot: where the next choice goes
  for (std::size_t begin = 0, end = 0; begin < units.size(); begin = end) {
    const std::uint32_t kind = kinds.of[units[begin]];
    const std::uint8_t executor = choices[units[begin]].executor;
    while (end < units.size() && kinds.of[units[end]] == kind &&
           choices[units[end]].executor == executor) {
      ++end;
    }
    rows.push_back({kind, kind * width + ranks[executor], begin, end});
    next[rows.back().slot + 1] += static_cast<std::uint32_t>(end - begin);
  }
  for (std::size_t i = 1; i < next.size(); ++i) next[i] += next[i - 1];
  std::vector<std::uint32_t> at(kinds.count);
  for (std::size_t k = 0; k < kinds.count; ++k) at[k] = next[k * width];
  Choices ordered(units.size());
  for (const Row& row : rows) {
    std::uint32_t to = next[row.slot];
    for (std::size_t i = row.begin; i < row.end; ++i) ordered[to++] = choices[units[i]];
    next[row.slot] = to;
  }
  Choices result(choices.size());
  for (const Row& row : rows) {
    std::uint32_t from = at[row.kind];
    for (std::size_t i = row.begin; i < row.end; ++i) result[units[i]] = ordered[from++];
    at[row.kind] = from;
  }
  return result;
}

}  // namespace

void gather_runs(const World& world, const UnitKinds& kinds, Choices* choices) {
  std::vector<char> busy(world.executors.size());
  for (const Choice choice : *choices) busy[choice.executor] = 1;
  const auto used = std::count(busy.begin(), busy.end(), 1);
  int hops = hops_of(world, *choices);
  if (hops < used) return;
  const bool cpu = world.computes_on_cpu() && busy.back() != 0;
  for (const bool cpu_first : {true, false}) {
    if ((cpu_first && !cpu) || hops < used) continue;
    std::vector<std::size_t> ranks(world.executors.size());
    for (std::size_t e = 0; e < ranks.size(); ++e) {
      ranks[e] = cpu_first ? (e + 1) % ranks.size() : e;
    }
    Choices other = gathered(world, *choices, kinds, ranks);
    const int left = hops_of(world, other);
    if (left >= hops) continue;
    hops = left;
    *choices = std::move(other);
  }
}

void spread_evenly(const World& world, const UnitKinds& kinds, const std::vector<int>& slots,
                   Choices* choices) {
  // Of one kind of units in one row: how many lie where.
  struct Shares {
    std::int64_t total = 0;
    std::int64_t seen = 0;
    std::array<std::int64_t, 3> count{};
    std::array<std::int64_t, 3> left{};
    std::size_t store = 0;  // of the group that is being placed
    std::int64_t size = 0;  // of a group, in units
    std::int64_t more = 0;  // units to come in this one

    // In parts of `total`, how far a kind of store is behind its share.
    std::int64_t behind(std::size_t kind) const {
      return seen * count[kind] - (count[kind] - left[kind]) * total;
    }
  };
  UnitOrder room;
  const UnitOrder& units = first_uses(world, &room);
  std::vector<Shares> shares(kinds.count);
  for (std::size_t begin = 0, end = 0; begin < units.size(); begin = end) {
    const Choice first = (*choices)[units[begin]];
    bool mixed = false;
    for (end = begin; end < units.size(); ++end) {
      const Choice choice = (*choices)[units[end]];
      if (choice.executor != first.executor) break;
      mixed = mixed || choice.store != first.store;
    }
    if (!mixed) continue;
    for (std::size_t i = begin; i < end; ++i) {
      Shares& share = shares[kinds.of[units[i]]];
      ++share.count[static_cast<std::size_t>((*choices)[units[i]].store)];
    }
    for (std::size_t i = begin; i < end; ++i) {
      const Unit& unit = world.units[units[i]];
      Shares& share = shares[kinds.of[units[i]]];
      if (share.seen == 0) {
        share.total = share.count[0] + share.count[1] + share.count[2];
        share.left = share.count;
        const Size together = slots[first.executor] * unit.piece;
        share.size = std::max<Size>(1, together / std::max<Size>(1, unit.weights));
      }
      ++share.seen;
      if (share.more == 0 || share.left[share.store] == 0) {
        std::int64_t furthest = std::numeric_limits<std::int64_t>::min();
        for (std::size_t store = 0; store < 3; ++store) {
          const std::int64_t behind = share.behind(store);
          if (share.left[store] == 0 || behind <= furthest) continue;
          furthest = behind;
          share.store = store;
        }
        share.more = share.size;
      }
      --share.more;
      --share.left[share.store];
      (*choices)[units[i]].store = static_cast<Store>(share.store);
      if (share.seen == share.total) share = {};
    }
  }
}

}  // namespace haul::core
