#include "core/place/stages.h"

#include <algorithm>
#include <random>

#include "tests/support/expect_error.h"

namespace haul::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

double slowest(const std::vector<double>& seconds, const std::vector<Stage>& stages) {
  double worst = 0;
  for (const Stage& stage : stages) {
    double sum = 0;
    for (std::size_t i = stage.begin; i < stage.end; ++i) sum += seconds[i];
    worst = std::max(worst, sum);
  }
  return worst;
}

// Of all ways to cut: the blocks that begin a stage are the bits of `cuts`.
double best_of_all(const std::vector<double>& seconds, std::size_t stages) {
  double best = 1e9;
  for (std::size_t cuts = 0; cuts < std::size_t{1} << (seconds.size() - 1); ++cuts) {
    std::vector<Stage> some{{0, seconds.size()}};
    for (std::size_t i = 1; i < seconds.size(); ++i) {
      if ((cuts >> (i - 1) & 1U) == 0) continue;
      some.back().end = i;
      some.push_back({i, seconds.size()});
    }
    if (some.size() == stages) best = std::min(best, slowest(seconds, some));
  }
  return best;
}

TEST(EvenStages, AreAsFastAsAnyCutOfTheBlocks) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> some(0, 10);
  for (int round = 0; round < 300; ++round) {
    std::vector<double> seconds(1 + random() % 9);
    for (double& one : seconds) one = random() % 4 == 0 ? 0 : some(random);
    const std::size_t count = 1 + random() % seconds.size();
    const std::vector<Stage> stages = even_stages(seconds, count);
    ASSERT_EQ(stages.size(), count);
    std::size_t next = 0;
    for (const Stage& stage : stages) {
      EXPECT_EQ(stage.begin, next);
      EXPECT_LT(stage.begin, stage.end);
      next = stage.end;
    }
    EXPECT_EQ(next, seconds.size());
    EXPECT_DOUBLE_EQ(slowest(seconds, stages), best_of_all(seconds, count));
  }
}

TEST(EvenStages, NeedABlockEach) {
  test::expect_error(ErrorKind::kUsage, HasSubstr("3 stages, and the model has 2 blocks"), [] {
    even_stages({1, 2}, 3);
  });
}

TEST(NamedStages, BeginWithTheBlocksThatAreNamed) {
  const std::vector<std::string> blocks{"a", "b", "c", "d"};
  EXPECT_THAT(named_stages(blocks, {"b", "d"}, 3),
              ElementsAre(Stage{0, 1}, Stage{1, 3}, Stage{3, 4}));
  EXPECT_THAT(named_stages(blocks, {"a", "c"}, 2), ElementsAre(Stage{0, 2}, Stage{2, 4}));
  EXPECT_THAT(named_stages(blocks, {}, 1), ElementsAre(Stage{0, 4}));
  test::expect_error(ErrorKind::kUsage, HasSubstr("no block 'e'"),
                     [&] { named_stages(blocks, {"e"}, 2); });
  test::expect_error(ErrorKind::kUsage, HasSubstr("'b' does not come behind"), [&] {
    named_stages(blocks, {"c", "b"}, 3);
  });
  test::expect_error(ErrorKind::kUsage, HasSubstr("2 stages for 3 processes"),
                     [&] { named_stages(blocks, {"c"}, 3); });
}

Description model() {
  const auto linear = [](const char* name, std::int64_t rows) {
    return ModuleSpec{name, "Linear", {{"weight", Dtype::kF32, {rows, 4}}}, {}, {}};
  };
  Description result;
  ModuleSpec& root = result.root;
  root.children.push_back({"words", "Embedding", {{"weight", Dtype::kF32, {1000, 4}}}, {}, {}});
  root.children.push_back({"h", "ModuleList", {}, {}, {linear("0", 10), linear("1", 30)}});
  root.children.push_back({"norm", "LayerNorm", {{"weight", Dtype::kF32, {4}}}, {}, {}});
  root.children.push_back(linear("head", 50));
  return result;
}

TEST(BlockTensors, GoWithTheirBlockOrTheOneBefore) {
  EXPECT_THAT(block_tensors(model(), {"h.0", "h.1"}),
              ElementsAre(ElementsAre("words.weight", "h.0.weight"),
                          ElementsAre("h.1.weight", "norm.weight", "head.weight")));
  test::expect_error(ErrorKind::kUsage, HasSubstr("'h.7'"), [] {
    block_tensors(model(), {"h.0", "h.7"});
  });
  test::expect_error(ErrorKind::kUsage, HasSubstr("named twice"), [] {
    block_tensors(model(), {"h.0", "h.0"});
  });
}

TEST(BlockSeconds, FollowWhatABlockReadsAndComputes) {
  Profile profile;
  profile.ram_bandwidth = 4;  // an element a second
  profile.cpu_operations = 1e9;
  // A token reads one row of the table.
  EXPECT_THAT(block_seconds(model(), {"h.0", "h.1"}, profile, false, 1),
              ElementsAre(4 + 40, 120 + 4 + 200));
  profile.cpu_operations = 2;  // an element of a token a second
  EXPECT_THAT(block_seconds(model(), {"h.0", "h.1"}, profile, false, 10),
              ElementsAre(400, 10 * (120 + 4 + 200)));
}

}  // namespace
}  // namespace haul::core
