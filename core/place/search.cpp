#include "core/place/search.h"

#include <algorithm>

namespace haul::core {
namespace {

// Differences below this share of a figure are rounding.
constexpr double kRounding = 1e-12;

bool better(const Score& a, const Score& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double margin = kRounding * std::max(a[i], b[i]);
    if (a[i] < b[i] - margin) return true;
    if (a[i] > b[i] + margin) return false;
  }
  return false;
}

class Search {
 public:
  Search(const World& world, Goal goal, std::optional<Choices> best)
      : world_(world),
        goal_(goal),
        options_(allowed_choices(world)),
        choices_(world.units.size()),
        best_(std::move(best)),
        used_(world.executors.size()),
        load_(world.executors.size()),
        piece_(world.executors.size()),
        link_(world.executors.size()),
        count_(world.executors.size()) {
    if (best_) best_score_ = score(world, *best_, predict(world, *best_), goal);
    rest_.resize(world.units.size() + 1);
    for (std::size_t u = world.units.size(); u-- > 0;) {
      double least = std::numeric_limits<double>::infinity();
      for (const Executor& e : world.executors) {
        least = std::min(least, compute_seconds(world.units[u], e));
      }
      rest_[u] = rest_[u + 1] + least;
    }
  }

  std::optional<Choices> run() {
    if (!world_.executors.empty()) visit(0);
    return best_;
  }

 private:
  void visit(std::size_t u) {
    if (u == world_.units.size()) {
      const Timing timing = predict(world_, choices_);
      if (!timing.fits) return;
      const Score found = score(world_, choices_, timing, goal_);
      if (best_ && !better(found, best_score_)) return;
      best_ = choices_;
      best_score_ = found;
      return;
    }
    for (const Choice choice : options_) {
      if (twin_is_free(choice.executor)) continue;
      choices_[u] = choice;
      const Unit& unit = world_.units[u];
      const State before = state_;
      const std::size_t e = choice.executor;
      const Size piece_before = piece_[e];
      apply(unit, choice, 1);
      if (possible(e) && (!best_ || better(bound(u + 1), best_score_))) visit(u + 1);
      apply(unit, choice, -1);
      state_ = before;
      piece_[e] = piece_before;
    }
  }

  // Of several equal executors the first is used first.
  bool twin_is_free(std::size_t e) const {
    if (e == 0 || count_[e] > 0 || count_[e - 1] > 0) return false;
    if (goal_ == Goal::kLowFirst && e == 1) return false;
    Executor twin = world_.executors[e - 1];
    twin.device = world_.executors[e].device;
    return twin == world_.executors[e];
  }

  void apply(const Unit& unit, Choice choice, int sign) {
    const std::size_t e = choice.executor;
    count_[e] += sign;
    used_[e] += sign * unit.extra;
    const double compute = compute_seconds(unit, world_.executors[e]);
    state_.chain += compute;
    if (world_.executors[e].device == kCpuDevice) state_.on_cpu += compute;
    if (choice.store == Store::kHere) {
      used_[e] += sign * unit.weights;
      load_[e] += sign * unit.weights;
      if (!world_.executors[e].device.is_accelerator()) state_.offloaded += unit.weights;
      return;
    }
    state_.offloaded += unit.weights;
    (choice.store == Store::kRam ? state_.ram : state_.disk) += unit.weights;
    if (choice.store == Store::kDisk) state_.read += copied_bytes(unit, world_.executors[e]);
    piece_[e] = std::max(piece_[e], copied_piece(unit, world_.executors[e]));
    link_[e] += sign * unit.weights;
  }

  // Whether what is chosen so far fits with one slot.
  bool possible(std::size_t e) const {
    const Executor& executor = world_.executors[e];
    Size used = used_[e] + piece_[e] + executor.fixed;
    if (executor.device == kCpuDevice) used += state_.ram;
    if (used > executor.capacity || state_.disk > world_.disk) return false;
    return state_.ram <= (world_.computes_on_cpu() ? world_.executors.back().capacity : world_.ram);
  }

  Score bound(std::size_t next) const {
    double seconds = state_.chain + rest_[next];
    seconds = std::max(seconds, static_cast<double>(state_.read) / world_.disk_bandwidth);
    double fullest = 0;
    for (std::size_t e = 0; e < world_.executors.size(); ++e) {
      const Executor& executor = world_.executors[e];
      if (executor.link > 0) {
        const LinkLoad link{static_cast<double>(link_[e]), 0, 0, state_.on_cpu};
        seconds = std::max(seconds, link_seconds(executor, link));
        if (goal_ == Goal::kBalanced || e > 0) {
          fullest = std::max(fullest, static_cast<double>(load_[e]));
        }
      }
    }
    const double offloaded = static_cast<double>(state_.offloaded);
    switch (goal_) {
      case Goal::kFastest:
        return {seconds, 0, 0, 0};
      case Goal::kBalanced:
        return {offloaded, fullest, seconds, 0};
      case Goal::kLowFirst:
        return {offloaded, static_cast<double>(load_[0]), fullest, seconds};
    }
    return {};
  }

  struct State {
    double chain = 0;
    double on_cpu = 0;
    Size ram = 0;
    Size disk = 0;
    Size read = 0;  // of that, by a pass
    Size offloaded = 0;
  };

  const World& world_;
  const Goal goal_;
  const std::vector<Choice> options_;
  Choices choices_;
  std::optional<Choices> best_;
  Score best_score_{};
  State state_;
  std::vector<Size> used_;
  std::vector<Size> load_;
  std::vector<Size> piece_;
  std::vector<Size> link_;
  std::vector<int> count_;
  std::vector<double> rest_;  // the least compute of the units from here on
};

}  // namespace

Score score(const World& world, const Choices& choices, const Timing& timing, Goal goal) {
  if (goal == Goal::kFastest) return {timing.seconds, 0, 0, 0};
  double offloaded = 0;
  std::vector<double> load(world.executors.size());
  for (std::size_t u = 0; u < choices.size(); ++u) {
    const bool on_gpu = choices[u].store == Store::kHere &&
                        world.executors[choices[u].executor].device.is_accelerator();
    (on_gpu ? load[choices[u].executor] : offloaded) += static_cast<double>(world.units[u].weights);
  }
  double fullest = 0;
  for (std::size_t e = goal == Goal::kLowFirst ? 1 : 0; e < load.size(); ++e) {
    fullest = std::max(fullest, load[e]);
  }
  if (goal == Goal::kBalanced) return {offloaded, fullest, timing.seconds, 0};
  return {offloaded, load.empty() ? 0 : load[0], fullest, timing.seconds};
}

std::optional<Choices> search_exactly(const World& world, Goal goal, std::optional<Choices> best) {
  return Search(world, goal, std::move(best)).run();
}

}  // namespace haul::core
