#include "runtime/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace haul::runtime {
namespace {

using testing::ElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Sampling random_sampling() {
  Sampling sampling;
  sampling.greedy = false;
  return sampling;
}

std::map<TokenId, double> frequencies(const std::vector<float>& logits, const Sampling& sampling,
                                      int draws) {
  std::map<TokenId, double> result;
  for (int i = 0; i < draws; ++i) {
    result[pick(logits, sampling, 0, static_cast<std::uint64_t>(i))] += 1.0 / draws;
  }
  return result;
}

std::vector<TokenId> tokens_of(const std::map<TokenId, double>& drawn) {
  std::vector<TokenId> result;
  result.reserve(drawn.size());
  for (const auto& [id, share] : drawn) result.push_back(id);
  return result;
}

// The probability of each token, with every filter written as its definition: whether a token stays
// is decided by those that are likelier than it.
std::vector<double> slow_probabilities(const std::vector<float>& logits, const Sampling& sampling) {
  const std::size_t size = logits.size();
  const auto likelier = [&](std::size_t a, std::size_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  };
  std::vector<double> chances(size);
  const auto normalise = [&] {
    double sum = 0;
    for (const double chance : chances) sum += chance;
    for (double& chance : chances) chance /= sum;
  };
  for (std::size_t i = 0; i < size; ++i) chances[i] = std::exp(logits[i] / sampling.temperature);
  const auto keep_if = [&](const auto& keep) {
    const std::vector<double> before = chances;
    for (std::size_t i = 0; i < size; ++i) {
      std::int64_t rank = 0;
      double above = 0;
      for (std::size_t j = 0; j < size; ++j) {
        if (!likelier(j, i)) continue;
        ++rank;
        above += before[j];
      }
      if (!keep(before[i], rank, above)) chances[i] = 0;
    }
    normalise();
  };
  normalise();
  if (sampling.top_k > 0) {
    keep_if([&](double, std::int64_t rank, double) { return rank < sampling.top_k; });
  }
  keep_if(
      [&](double, std::int64_t rank, double above) { return rank == 0 || above < sampling.top_p; });
  const double most = *std::max_element(chances.begin(), chances.end());
  keep_if([&](double chance, std::int64_t, double) { return chance >= sampling.min_p * most; });
  return chances;
}

// The token at which the sum of the probabilities, the likeliest first, passes the random number.
TokenId slow_pick(const std::vector<float>& logits, const Sampling& sampling, std::uint64_t row,
                  std::uint64_t step) {
  const std::vector<double> chances = slow_probabilities(logits, sampling);
  std::vector<TokenId> order(logits.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<TokenId>(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  const double number = random_number(sampling.seed, row, step);
  double sum = 0;
  for (const TokenId id : order) {
    sum += chances[id];
    if (number < sum) return id;
  }
  return order.front();
}

TEST(Sampler, GreedyTakesTheLikeliestAndOfEqualOnesTheFirst) {
  const Sampling greedy;
  EXPECT_EQ(pick(std::vector<float>{0.5F, 3, -1, 3}, greedy, 0, 0), 1U);
  EXPECT_EQ(pick(std::vector<float>{-5, -4, -3}, greedy, 7, 9), 2U);
  EXPECT_EQ(pick(std::vector<float>{-kInfinity, -kInfinity, -80}, greedy, 0, 0), 2U);
}

TEST(Sampler, ThePenaltyMakesSeenTokensLessLikelyOnceHoweverOftenTheyWereSeen) {
  std::vector<float> logits = {2, -2, 4, -4, 0};
  penalise(logits, std::vector<TokenId>{0, 1, 1, 0, 0, 4}, 2);
  EXPECT_THAT(logits, ElementsAre(1, -4, 4, -4, 0));
}

TEST(Sampler, APenaltyOfOneChangesNothing) {
  std::vector<float> logits = {2, -2, 0.1F};
  penalise(logits, std::vector<TokenId>{0, 1, 2}, 1);
  EXPECT_THAT(logits, ElementsAre(2, -2, 0.1F));
}

TEST(Sampler, ThePenaltyPassesOverTokensThatHaveNoLogit) {
  std::vector<float> logits = {2, 4};
  penalise(logits, std::vector<TokenId>{1, 2, std::numeric_limits<TokenId>::max()}, 4);
  EXPECT_THAT(logits, ElementsAre(2, 1));
}

TEST(Sampler, RandomNumbersAreTheSameForever) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(random_number(0, 0, 0), 0x1.1c13ade1c7e5cp-3);
  EXPECT_EQ(random_number(0, 0, 1), 0x1.0876bcc0cfa20p-2);
  EXPECT_EQ(random_number(0, 1, 0), 0x1.2924d85d00396p-1);
  EXPECT_EQ(random_number(1, 0, 0), 0x1.631405e8db1b0p-1);
  EXPECT_EQ(random_number(42, 3, 1000), 0x1.4ca37e99f0882p-1);
  EXPECT_EQ(random_number(kMost, kMost, kMost), 0x1.02a8e26e9f30cp-2);
}

TEST(Sampler, RandomNumbersFillTheirRangeEvenlyAlongEachOfTheThree) {
  constexpr std::uint64_t kDraws = 20'000;
  constexpr std::size_t kParts = 10;
  for (int along = 0; along < 3; ++along) {
    std::vector<double> shares(kParts);
    for (std::uint64_t i = 0; i < kDraws; ++i) {
      const double number =
          random_number(along == 0 ? i : 5, along == 1 ? i : 5, along == 2 ? i : 5);
      ASSERT_GE(number, 0);
      ASSERT_LT(number, 1);
      shares[static_cast<std::size_t>(number * kParts)] += 1.0 / kDraws;
    }
    for (const double share : shares) EXPECT_NEAR(share, 0.1, 0.01) << along;
  }
}

TEST(Sampler, FrequenciesAreNearTheProbabilities) {
  const std::vector<float> logits = {0, 1, 2, -1, 1.5F};
  for (const double temperature : {0.5, 1.0, 3.0}) {
    Sampling sampling = random_sampling();
    sampling.temperature = temperature;
    sampling.seed = 11;
    const std::vector<double> expected = slow_probabilities(logits, sampling);
    auto found = frequencies(logits, sampling, 20'000);
    for (TokenId id = 0; id < logits.size(); ++id) {
      EXPECT_NEAR(found[id], expected[id], 0.015) << "token " << id << " at " << temperature;
    }
  }
}

TEST(Sampler, ALowTemperatureGivesTheLikeliestAlone) {
  const std::vector<float> logits = {1, 3, 2};
  for (const double temperature :
       {1e-3, 1e-30, 1e-300, std::numeric_limits<double>::denorm_min()}) {
    Sampling sampling = random_sampling();
    sampling.temperature = temperature;
    EXPECT_THAT(tokens_of(frequencies(logits, sampling, 200)), ElementsAre(1)) << temperature;
  }
}

TEST(Sampler, AnEndlessTemperatureGivesAllAlike) {
  Sampling sampling = random_sampling();
  sampling.temperature = std::numeric_limits<double>::infinity();
  auto found = frequencies({-50, 0, 50, 7}, sampling, 20'000);
  for (TokenId id = 0; id < 4; ++id) EXPECT_NEAR(found[id], 0.25, 0.015);
}

TEST(Sampler, TopKLeavesSoMany) {
  const std::vector<float> logits = {1, 2, 1, 2, 0, 1};
  Sampling sampling = random_sampling();
  sampling.top_k = 1;
  EXPECT_THAT(tokens_of(frequencies(logits, sampling, 500)), ElementsAre(1));
  sampling.top_k = 3;  // of three equal ones the first
  EXPECT_THAT(tokens_of(frequencies(logits, sampling, 500)), ElementsAre(0, 1, 3));
  sampling.top_k = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(tokens_of(frequencies(logits, sampling, 500)), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(Sampler, TopPLeavesTheFewestThatMakeItUpAndAtLeastOne) {
  const std::vector<float> logits = {std::log(0.15F), std::log(0.5F), std::log(0.05F),
                                     std::log(0.3F)};
  Sampling sampling = random_sampling();
  for (const auto& [top_p, expected] : std::vector<std::pair<double, std::vector<TokenId>>>{
           {1e-9, {1}}, {0.49, {1}}, {0.51, {1, 3}}, {0.81, {0, 1, 3}}, {1, {0, 1, 2, 3}}}) {
    sampling.top_p = top_p;
    EXPECT_EQ(tokens_of(frequencies(logits, sampling, 2000)), expected) << top_p;
  }
}

TEST(Sampler, MinPLeavesThoseThatAreNotFarLessLikelyThanTheFirst) {
  const std::vector<float> logits = {std::log(0.15F), std::log(0.5F), std::log(0.05F),
                                     std::log(0.3F)};
  Sampling sampling = random_sampling();
  for (const auto& [min_p, expected] : std::vector<std::pair<double, std::vector<TokenId>>>{
           {1, {1}}, {0.59, {1, 3}}, {0.29, {0, 1, 3}}, {0.09, {0, 1, 2, 3}}}) {
    sampling.min_p = min_p;
    EXPECT_EQ(tokens_of(frequencies(logits, sampling, 2000)), expected) << min_p;
  }
}

TEST(Sampler, PicksAsASlowReferenceWithAllFiltersAtRandom) {
  std::mt19937 random(5);
  const auto chance = [&] { return std::uniform_real_distribution<>()(random); };
  for (int i = 0; i < 3000; ++i) {
    std::vector<float> logits(1 + random() % 40);
    // Some in halves, so that there are equal ones.
    const bool coarse = random() % 2 == 0;
    for (float& logit : logits) {
      logit = static_cast<float>(8 * chance() - 4);
      if (coarse) logit = std::round(2 * logit) / 2;
    }
    Sampling sampling = random_sampling();
    sampling.seed = random();
    sampling.temperature = 0.2 + 2 * chance();
    if (random() % 2 == 0) sampling.top_k = 1 + static_cast<std::int64_t>(random() % 45);
    if (random() % 2 == 0) sampling.top_p = 0.01 + 0.99 * chance();
    if (random() % 2 == 0) sampling.min_p = chance() / 2;
    const std::uint64_t row = random() % 8;
    const std::uint64_t step = random() % 1000;
    ASSERT_EQ(pick(logits, sampling, row, step), slow_pick(logits, sampling, row, step))
        << "case " << i << ": " << logits.size() << " logits, temperature " << sampling.temperature
        << ", top_k " << sampling.top_k << ", top_p " << sampling.top_p << ", min_p "
        << sampling.min_p;
  }
}

TEST(Sampler, SeedRowAndStepEachChangeWhatIsDrawn) {
  const std::vector<float> logits(1000, 0.0F);
  Sampling sampling = random_sampling();
  const TokenId first = pick(logits, sampling, 0, 0);
  EXPECT_EQ(pick(logits, sampling, 0, 0), first);
  EXPECT_NE(pick(logits, sampling, 1, 0), first);
  EXPECT_NE(pick(logits, sampling, 0, 1), first);
  sampling.seed = 1;
  EXPECT_NE(pick(logits, sampling, 0, 0), first);
}

TEST(Sampler, TokensWithoutAFiniteLogitAreNotDrawn) {
  const std::vector<float> logits = {kNan, -kInfinity, 1, kNan, 1};
  EXPECT_EQ(pick(logits, Sampling(), 0, 0), 2U);
  EXPECT_THAT(tokens_of(frequencies(logits, random_sampling(), 200)), ElementsAre(2, 4));
}

TEST(Sampler, AnInfiniteLogitWins) {
  const std::vector<float> logits = {1, kNan, kInfinity, 3};
  EXPECT_EQ(pick(logits, Sampling(), 0, 0), 2U);
  EXPECT_THAT(tokens_of(frequencies(logits, random_sampling(), 50)), ElementsAre(2));
}

TEST(Sampler, WithoutAnyFiniteLogitTheFirstTokenComes) {
  for (const float nothing : {-kInfinity, kNan}) {
    const std::vector<float> logits(5, nothing);
    EXPECT_EQ(pick(logits, Sampling(), 0, 3), 0U);
    EXPECT_EQ(pick(logits, random_sampling(), 0, 3), 0U);
  }
}

}  // namespace
}  // namespace haul::runtime
