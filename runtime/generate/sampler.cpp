#include "runtime/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace haul::runtime {
namespace {

// splitmix64's finaliser.
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

struct Choice {
  TokenId id;
  double logit;
};

// The likeliest first; of equal ones the first.
bool likelier(const Choice& a, const Choice& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// NaN is never it, unless there is nothing else.
TokenId likeliest(std::span<const float> logits) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < logits.size(); ++i) {
    if (logits[i] > logits[best] || (std::isnan(logits[best]) && !std::isnan(logits[i]))) best = i;
  }
  return static_cast<TokenId>(best);
}

}  // namespace

double random_number(std::uint64_t seed, std::uint64_t row, std::uint64_t step) {
  constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15U;
  const std::uint64_t bits = mixed(mixed(mixed(seed + kStep) + row + kStep) + step + kStep);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

void penalise(std::span<float> logits, std::span<const TokenId> seen, double penalty) {
  if (penalty == 1) return;
  std::vector<TokenId> distinct(seen.begin(), seen.end());
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  for (const TokenId id : distinct) {
    if (id >= logits.size()) continue;
    float& logit = logits[id];
    logit = static_cast<float>(logit < 0 ? logit * penalty : logit / penalty);
  }
}

TokenId pick(std::span<const float> logits, const Sampling& sampling, std::uint64_t row,
             std::uint64_t step) {
  const TokenId best = likeliest(logits);
  if (sampling.greedy || !std::isfinite(logits[best])) return best;
  // Less the largest, so that they stay numbers however low the temperature is.
  std::vector<Choice> candidates;
  candidates.reserve(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!std::isfinite(logits[i])) continue;
    const double less = static_cast<double>(logits[i]) - logits[best];
    candidates.push_back({static_cast<TokenId>(i), less / sampling.temperature});
  }
  if (sampling.top_k > 0 && static_cast<std::size_t>(sampling.top_k) < candidates.size()) {
    std::nth_element(candidates.begin(), candidates.begin() + (sampling.top_k - 1),
                     candidates.end(), likelier);
    candidates.resize(static_cast<std::size_t>(sampling.top_k));
  }
  std::sort(candidates.begin(), candidates.end(), likelier);
  std::vector<double> chances;
  double sum = 0;
  for (const Choice& candidate : candidates) {
    chances.push_back(std::exp(candidate.logit));
    sum += chances.back();
  }
  // As many as make up top_p, at least one; of them those that are not far less likely than the
  // first.
  double kept = 0;
  std::size_t count = 0;
  while (count < chances.size() && (count == 0 || kept < sampling.top_p * sum) &&
         chances[count] >= sampling.min_p) {
    kept += chances[count++];
  }
  double left = random_number(sampling.seed, row, step) * kept;
  for (std::size_t i = 0; i + 1 < count; ++i) {
    if (left < chances[i]) return candidates[i].id;
    left -= chances[i];
  }
  return candidates[count - 1].id;
}

}  // namespace haul::runtime
