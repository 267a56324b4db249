#include "runtime/generate/beams.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace haul::runtime {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

constexpr TokenId kWords = 4;
constexpr TokenId kStop = 0;

// Log probabilities of each token after each: a language of four words.
using Language = std::array<std::array<float, kWords>, kWords>;

Language random_language(std::mt19937& random) {
  Language language;
  for (auto& row : language) {
    float sum = 0;
    for (float& chance : row) sum += chance = static_cast<float>(1 + random() % 1000);
    for (float& chance : row) chance = std::log(chance / sum);
  }
  return language;
}

float after(const Language& language, const std::vector<TokenId>& ids, TokenId next) {
  return language.at(ids.empty() ? 1 : ids.back()).at(next);
}

void step(Beams& beams, const Language& language) {
  std::vector<Candidate> all;
  for (std::size_t i = 0; i < beams.running().size(); ++i) {
    const Beams::Beam& beam = beams.running()[i];
    for (TokenId id = 0; id < kWords; ++id) {
      all.push_back({i, id, beam.score + after(language, beam.ids, id)});
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Candidate& a, const Candidate& b) { return a.score > b.score; });
  all.resize(std::min(all.size(), beams.candidates()));
  beams.step(all);
}

Beams::Beam search(const Language& language, const BeamSettings& settings, std::int64_t most) {
  Beams beams(settings, {kStop}, most);
  while (!beams.ended()) step(beams, language);
  return beams.best();
}

// The best score of everything that can be said.
void try_all(const Language& language, double penalty, std::size_t most, std::vector<TokenId>& ids,
             float score, float* best) {
  for (TokenId id = 0; id < kWords; ++id) {
    const float sum = score + after(language, ids, id);
    ids.push_back(id);
    if (id != kStop && ids.size() < most) {
      try_all(language, penalty, most, ids, sum, best);
    } else {
      const double length = std::pow(static_cast<double>(ids.size()), penalty);
      *best = std::max(*best, sum / static_cast<float>(length));
    }
    ids.pop_back();
  }
}

TEST(Beams, WithRoomForEverythingTheBestOfAllIsFound) {
  std::mt19937 random(1);
  for (int run = 0; run < 100; ++run) {
    const Language language = random_language(random);
    for (const double penalty : {0.0, 0.7, 1.0, 2.0}) {
      float best = -std::numeric_limits<float>::infinity();
      std::vector<TokenId> ids;
      try_all(language, penalty, 4, ids, 0, &best);
      // Another order of the same steps may be as good.
      EXPECT_NEAR(search(language, {300, penalty, EarlyStopping::kNever}, 4).score, best, 1e-5);
    }
  }
}

TEST(Beams, OneBeamAlwaysTakesTheLikeliestToken) {
  std::mt19937 random(2);
  const Language language = random_language(random);
  std::vector<TokenId> expected;
  while (expected.size() < 9 && (expected.empty() || expected.back() != kStop)) {
    const auto& row = language.at(expected.empty() ? 1 : expected.back());
    expected.push_back(
        static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin()));
  }
  EXPECT_EQ(search(language, {1, 1, EarlyStopping::kYes}, 9).ids, expected);
}

// Two words that go on and one that stops, with these scores.
std::vector<Candidate> candidates(float stops, float first, float second) {
  std::vector<Candidate> all = {{0, kStop, stops}, {0, 1, first}, {0, 2, second}};
  std::stable_sort(all.begin(), all.end(),
                   [](const Candidate& a, const Candidate& b) { return a.score > b.score; });
  return all;
}

TEST(Beams, WhatIsNotAmongTheFirstIsNotComplete) {
  Beams beams({2, 1, EarlyStopping::kYes}, {kStop}, 10);
  EXPECT_EQ(beams.candidates(), 4U);
  beams.step(candidates(-3, -1, -2));
  EXPECT_THAT(beams.running(), SizeIs(2));
  EXPECT_THAT(beams.best().ids, ElementsAre(1));
  beams.step(candidates(-2, -2.5, -3));
  EXPECT_THAT(beams.best().ids, ElementsAre(1, kStop));
  EXPECT_TRUE(beams.stops(beams.best()));
}

TEST(Beams, EarlyStoppingDecidesWhenItEnds) {
  const auto steps = [](EarlyStopping early, double penalty) {
    Beams beams({1, penalty, early}, {kStop}, 10);
    beams.step(candidates(-1, -1.5, -9));  // one is complete, and one that goes on may overtake it
    int count = 1;
    for (float score = -1.6F; !beams.ended(); score -= 0.1F, ++count) {
      beams.step(candidates(-50, score, -60));
    }
    return count;
  };
  EXPECT_EQ(steps(EarlyStopping::kYes, 1), 1);
  EXPECT_EQ(steps(EarlyStopping::kNo, 0), 1);  // it can only get worse
  EXPECT_EQ(steps(EarlyStopping::kNever, 0), 1);
  EXPECT_EQ(steps(EarlyStopping::kNo, 1), 1);      // -1.5 / 1 is worse now
  EXPECT_EQ(steps(EarlyStopping::kNever, 1), 10);  // -1.5 / 10 would not be
}

TEST(Beams, TheLongestIsCompleteWithoutAStop) {
  Beams beams({2, 1, EarlyStopping::kNo}, {}, 2);
  EXPECT_EQ(beams.candidates(), 4U);
  beams.step(candidates(-3, -1, -2));
  EXPECT_FALSE(beams.ended());
  beams.step(candidates(-8, -4, -6));
  EXPECT_TRUE(beams.ended());
  EXPECT_THAT(beams.best().ids, ElementsAre(1, 1));
  EXPECT_FALSE(beams.stops(beams.best()));
}

TEST(Beams, ScoresThatAreNoNumbersEndToo) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Beams beams({2, 1, EarlyStopping::kNo}, {kStop}, 3);
  for (int i = 0; i < 3 && !beams.ended(); ++i) beams.step(candidates(nan, nan, nan));
  EXPECT_TRUE(beams.ended());
  EXPECT_FALSE(beams.best().ids.empty());
}

}  // namespace
}  // namespace haul::runtime
