#pragma once

// The planner's slow judge: every choice of places for every unit.

#include <limits>

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

}  // namespace haul::test
