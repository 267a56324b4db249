#pragma once

// The planner's slow judges: every choice of places for every unit, and, for more units, every set
// of units on every device.

#include <algorithm>
#include <limits>
#include <vector>

#include "core/place/world.h"

namespace haul::test {

struct BruteForce {
  bool fits = false;
  double seconds = std::numeric_limits<double>::infinity();
  double fullest_gpu = std::numeric_limits<double>::infinity();  // with all weights on GPUs
};

inline BruteForce brute_force(const core::World& world) {
  const auto options = core::allowed_choices(world);
  BruteForce best;
  core::Choices choices(world.units.size());
  std::vector<std::size_t> digits(world.units.size());
  for (;;) {
    for (std::size_t u = 0; u < digits.size(); ++u) choices[u] = options[digits[u]];
    const core::Timing timing = core::predict(world, choices);
    if (timing.fits) {
      best.fits = true;
      best.seconds = std::min(best.seconds, timing.seconds);
      std::vector<double> load(world.executors.size());
      bool all_on_gpus = true;
      for (std::size_t u = 0; u < choices.size(); ++u) {
        all_on_gpus = all_on_gpus && choices[u].store == core::Store::kHere &&
                      world.executors[choices[u].executor].device.is_accelerator();
        load[choices[u].executor] += static_cast<double>(world.units[u].weights);
      }
      if (all_on_gpus) {
        best.fullest_gpu = std::min(best.fullest_gpu, *std::max_element(load.begin(), load.end()));
      }
    }
    std::size_t u = 0;
    while (u < digits.size() && ++digits[u] == options.size()) digits[u++] = 0;
    if (u == digits.size()) return best;
  }
}

// Whether any choice fits, for up to 8 units. Knows the rules of the budgets from world.h alone and
// shares no code with the planner.
class FitsSomewhere {
 public:
  explicit FitsSomewhere(const core::World& world)
      : world_(world), sets_(std::size_t{1} << world.units.size()) {
    weights_.resize(sets_);
    extras_.resize(sets_);
    pieces_.resize(sets_);
    pieces_of_cpu_.resize(sets_);
    for (std::size_t set = 0; set < sets_; ++set) {
      for (std::size_t u = 0; u < world.units.size(); ++u) {
        if ((set >> u & 1) == 0) continue;
        weights_[set] += world.units[u].weights;
        extras_[set] += world.units[u].extra;
        pieces_[set] = std::max(pieces_[set], world.units[u].piece);
        const bool table = world.units[u].rows > 0;
        pieces_of_cpu_[set] = std::max(pieces_of_cpu_[set], table ? 0 : world.units[u].piece);
      }
    }
  }

  bool answer() const {
    // What the GPUs so far can compute, by that set and the part of it that lies elsewhere.
    std::vector<char> reached(sets_ * sets_);
    reached[0] = 1;
    for (const core::Executor& executor : world_.executors) {
      if (executor.link > 0) reached = with_gpu(executor, reached);
    }
    for (std::size_t computed = 0; computed < sets_; ++computed) {
      for (std::size_t away = 0; away < sets_; ++away) {
        if (reached[computed * sets_ + away] != 0 && rest_fits(computed, away)) return true;
      }
    }
    return false;
  }

 private:
  // Calls `visit` with each part of a set, the set and the empty one included.
  template <typename Visit>
  static void for_each_part(std::size_t set, Visit visit) {
    for (std::size_t part = set;; part = (part - 1) & set) {
      visit(part);
      if (part == 0) return;
    }
  }

  // Bytes on an executor that computes a set and has `copied` of it copied, with one slot.
  core::Size used(const core::Executor& executor, std::size_t set, std::size_t copied) const {
    if (set == 0) return 0;
    if (!executor.holds_weights && copied != set) return core::kNoLimit * 2;
    const core::Size slot = executor.link > 0 ? pieces_[copied] : pieces_of_cpu_[copied];
    return executor.fixed + extras_[set] + weights_[set & ~copied] + slot;
  }

  std::vector<char> with_gpu(const core::Executor& gpu, const std::vector<char>& reached) const {
    std::vector<char> result = reached;
    std::vector<std::pair<std::size_t, std::size_t>> ways;
    for_each_part(sets_ - 1, [&](std::size_t set) {
      for_each_part(set, [&](std::size_t copied) {
        if (set != 0 && used(gpu, set, copied) <= gpu.capacity) ways.emplace_back(set, copied);
      });
    });
    for (std::size_t computed = 0; computed < sets_; ++computed) {
      for_each_part(computed, [&](std::size_t away) {
        if (reached[computed * sets_ + away] == 0) return;
        for (const auto& [set, copied] : ways) {
          if ((set & computed) == 0) result[(computed | set) * sets_ + (away | copied)] = 1;
        }
      });
    }
    return result;
  }

  // The CPU computes what is left, and RAM and disk take what lies away from GPUs.
  bool rest_fits(std::size_t computed, std::size_t away) const {
    const std::size_t left = (sets_ - 1) & ~computed;
    const bool has_cpu = world_.computes_on_cpu();
    if (left != 0 && !has_cpu) return false;
    const core::Size ram = has_cpu ? world_.executors.back().capacity : world_.ram;
    bool fits = false;
    for_each_part(left, [&](std::size_t read) {
      const core::Size own = has_cpu ? used(world_.executors.back(), left, read) : 0;
      if (fits || own > ram) return;
      for_each_part(away, [&](std::size_t kept) {
        if (kept != 0 && world_.ram == 0) return;
        const std::size_t on_disk = (away & ~kept) | read;
        if (on_disk != 0 && world_.disk == 0) return;
        fits = fits || (own + weights_[kept] <= ram && weights_[on_disk] <= world_.disk);
      });
    });
    return fits;
  }

  const core::World& world_;
  const std::size_t sets_;
  std::vector<core::Size> weights_;  // by set of units
  std::vector<core::Size> extras_;
  std::vector<core::Size> pieces_;
  std::vector<core::Size> pieces_of_cpu_;
};

inline bool fits_somewhere(const core::World& world) {
  return FitsSomewhere(world).answer();
}

}  // namespace haul::test
