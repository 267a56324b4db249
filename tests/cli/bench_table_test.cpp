#include "cli/torch/bench_table.h"

#include <gtest/gtest.h>

namespace haul::cli {
namespace {

BenchRow row(std::vector<double> haul, std::vector<double> peer) {
  BenchRow result;
  result.name = "60 % on the GPU";
  result.unit = "tokens/s";
  result.haul = std::move(haul);
  result.peer = std::move(peer);
  return result;
}

TEST(BenchLine, HasTheMediansAndHowTheyCompare) {
  EXPECT_EQ(bench_line(row({17, 18, 30}, {0.9, 0.8, 1})),
            "60 % on the GPU: 18.0 tokens/s, the peer 0.90, 20.0x, ids same");
  EXPECT_EQ(bench_line(row({18}, {})), "60 % on the GPU: 18.0 tokens/s");
  EXPECT_EQ(bench_line(row({}, {0.9})), "60 % on the GPU: does not fit, the peer 0.90, ids -");
}

TEST(BenchLine, HasTheLimitThePlanAndTheIds) {
  BenchRow one = row({18}, {0.9});
  one.limit = 20;
  one.planned = 19;
  one.ids.tie = 2;
  one.ids.gap = 0.012;
  EXPECT_EQ(bench_line(one),
            "60 % on the GPU: 18.0 tokens/s, 0.90 of the limit, 20.0, planned 19.0, the peer 0.90, "
            "20.0x, ids same to a tie at 2 (1.2 %)");
  one.ids = {false, {}, "prompt 1: token 2 is 5, the peer's 7"};
  EXPECT_TRUE(bench_line(one).ends_with("ids DIFFER: prompt 1: token 2 is 5, the peer's 7"));
}

TEST(BenchLine, OfSecondsComparesTheOtherWayRound) {
  BenchRow load = row({2}, {9});
  load.unit = "s";
  load.more_is_better = false;
  EXPECT_EQ(bench_line(load), "60 % on the GPU: 2.00 s, the peer 9.00, 4.50x, ids same");
}

TEST(BenchTable, SaysWhereIdsDifferAndWhatALimitLeaves) {
  BenchRow one = row({18}, {0.9});
  one.limit = 20;
  one.ids = {false, {}, "prompt 1: token 2 is 5, the peer's 7"};
  const std::string table = bench_table({one});
  EXPECT_NE(table.find(" 20.0     18.0    0.90"), std::string::npos) << table;
  EXPECT_NE(table.find("DIFFER"), std::string::npos);
  EXPECT_NE(table.find("prompt 1: token 2 is 5, the peer's 7"), std::string::npos);
}

TEST(BenchJson, ComparesNothingWithWhatDidNotFit) {
  const core::Json json = to_json(row({}, {0.9}));
  EXPECT_EQ(json["peer"], 0.9);
  EXPECT_TRUE(json["ids"].is_null());
}

}  // namespace
}  // namespace haul::cli
