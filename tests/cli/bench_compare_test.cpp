#include "cli/torch/bench_compare.h"

#include <gtest/gtest.h>

namespace haul::cli {
namespace {

constexpr double kTolerance = 0.02;

// Tokens 7 and 8 are the likeliest everywhere, 1 % apart at the second place and 10 % elsewhere.
core::Json tops(std::size_t answers) {
  const core::Json far{{7, 8}, {5.0, 4.5}};
  const core::Json near{{7, 8}, {5.0, 4.95}};
  return core::Json(answers, core::Json{far, near, far});
}

TEST(BenchCompare, SameAnswersAreTheSame) {
  const Comparison found = compare({{7, 7, 7}}, {{7, 7, 7}}, tops(1), kTolerance);
  EXPECT_TRUE(found.same);
  EXPECT_FALSE(found.tie.has_value());
}

TEST(BenchCompare, WhatFollowsATieDoesNotCount) {
  const Comparison found = compare({{7, 8, 3}}, {{7, 7, 4}}, tops(1), kTolerance);
  EXPECT_TRUE(found.same);
  EXPECT_EQ(found.tie, 2U);
}

TEST(BenchCompare, SeveralMayBeAlmostEquallyLikely) {
  const core::Json three{{{{7, 8, 9}, {5.0, 4.99, 4.95}}}};
  const Comparison found = compare({{9}}, {{7}}, three, kTolerance);
  EXPECT_EQ(found.tie, 1U);
  EXPECT_NEAR(found.gap, 0.01, 1e-9);
  EXPECT_FALSE(compare({{9}}, {{7}}, three, 0.005).same) << "the second is near, the third is not";
}

TEST(BenchCompare, ATokenThatIsClearlyWorseIsADifference) {
  const Comparison found = compare({{8, 7, 7}}, {{7, 7, 7}}, tops(1), kTolerance);
  EXPECT_FALSE(found.same);
  EXPECT_EQ(found.difference,
            "prompt 1: token 1 is 8, the peer's 7; the peer has ours 10.0 % behind");
}

TEST(BenchCompare, ATokenThatIsNotAmongTheLikeliestIsADifference) {
  const Comparison found = compare({{7, 9, 7}}, {{7, 7, 7}}, tops(1), kTolerance);
  EXPECT_FALSE(found.same);
  EXPECT_EQ(found.difference,
            "prompt 1: token 2 is 9, the peer's 7; the peer has ours not among its likeliest");
}

TEST(BenchCompare, EveryPromptCounts) {
  EXPECT_FALSE(compare({{7}, {9}}, {{7}, {7}}, tops(2), kTolerance).same);
  const Comparison found =
      compare({{7, 7, 7}, {7, 8, 7}}, {{7, 7, 7}, {7, 7, 7}}, tops(2), kTolerance);
  EXPECT_TRUE(found.same);
  EXPECT_EQ(found.tie, 2U);
}

TEST(BenchCompare, AnAnswerThatEndsEarlyIsADifference) {
  EXPECT_EQ(compare({{7, 7}}, {{7, 7, 7}}, tops(1), kTolerance).difference,
            "prompt 1: 2 tokens, the peer's 3");
}

}  // namespace
}  // namespace haul::cli
