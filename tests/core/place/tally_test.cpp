#include "core/place/tally.h"

#include <random>

#include <gtest/gtest.h>

namespace haul::core {
namespace {

TEST(Tally, TellsWhatPredictTellsAfterEveryMove) {
  std::mt19937 random(5);
  const auto pick = [&](Size low, Size high) {
    return std::uniform_int_distribution<Size>(low, high)(random);
  };
  int fitted = 0;
  for (int round = 0; round < 50; ++round) {
    World world;
    for (std::uint32_t u = 0; u < 12; ++u) {
      const Size weights = pick(1, 9);
      world.units.push_back({weights, pick(1, weights), pick(0, weights), pick(0, 2), 10.0,
                             static_cast<int>(pick(0, 2))});
      if (pick(0, 2) == 0) world.units.back().rows = pick(1, weights);
      world.order.push_back(u);
    }
    world.order.push_back(static_cast<std::uint32_t>(pick(0, 11)));  // one is used again
    world.executors = {{gpu(0), pick(10, 60), true, 1, 100, 1000, 4, 0.03},
                       {gpu(1), pick(10, 60), true, 2, 100, 1000, 2},
                       {kCpuDevice, 60, true, 1, 10, 50, 0, 0.2}};
    world.ram = 60;
    world.disk = 40;
    world.disk_bandwidth = 1;
    world.hop = 0.01;
    const std::vector<Choice> options = allowed_choices(world);
    Choices choices(world.units.size(), options.front());
    Tally tally(world, &choices);
    for (int step = 0; step < 100; ++step) {
      const auto unit = static_cast<std::uint32_t>(pick(0, 11));
      const Choice option = options[static_cast<std::size_t>(pick(0, 7))];
      const Tally::Figures told = tally.after(unit, option);
      tally.move(unit, option);
      ASSERT_EQ(choices[unit], option);
      const Timing timing = predict(world, choices);
      for (const Tally::Figures& figures : {told, tally.now()}) {
        ASSERT_EQ(figures.fits, timing.fits);
        ASSERT_EQ(figures.hops, timing.hops);
        if (!timing.fits) continue;
        ++fitted;
        ASSERT_NEAR(figures.seconds, timing.seconds, 1e-9);
        ASSERT_EQ(figures.away, timing.ram_used + 2 * timing.disk_used);
      }
    }
  }
  EXPECT_GT(fitted, 500);
}

}  // namespace
}  // namespace haul::core
