#include "cli/torch/bench_compare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include <fmt/format.h>

namespace haul::cli {
namespace {

// How much less likely than its own token ours is to the peer, as a share of the logit. `top`: its
// likeliest, the one it took first, and their logits. Infinite where one is not among them.
double gap_between(const core::Json& top, TokenId ours, TokenId peers) {
  const auto names = top.at(0).get<std::vector<TokenId>>();
  const auto logits = top.at(1).get<std::vector<double>>();
  const auto found = static_cast<std::size_t>(std::ranges::find(names, ours) - names.begin());
  if (std::ranges::count(names, peers) != 1 || found == names.size()) {
    return std::numeric_limits<double>::infinity();
  }
  return std::abs(logits[0] - logits[found]) / std::abs(logits[0]);
}

}  // namespace

Comparison compare(const Answers& ours, const Answers& peers, const core::Json& tops,
                   double tolerance) {
  Comparison result;
  for (std::size_t i = 0; i < std::min(ours.size(), peers.size()); ++i) {
    const auto [a, b] = std::ranges::mismatch(ours[i], peers[i]);
    const auto at = static_cast<std::size_t>(a - ours[i].begin());
    if (a == ours[i].end() && b == peers[i].end()) continue;
    if (a == ours[i].end() || b == peers[i].end()) {
      return {false,
              {},
              fmt::format("prompt {}: {} tokens, the peer's {}", i + 1, ours[i].size(),
                          peers[i].size())};
    }
    const double gap = gap_between(tops.at(i).at(at), *a, *b);
    if (!(gap <= tolerance)) {
      const std::string how_far =
          std::isinf(gap) ? "not among its likeliest" : fmt::format("{:.1f} % behind", 100 * gap);
      return {false,
              {},
              fmt::format("prompt {}: token {} is {}, the peer's {}; the peer has ours {}", i + 1,
                          at + 1, *a, *b, how_far)};
    }
    result.tie = std::min(result.tie.value_or(at + 1), at + 1);
    result.gap = std::max(result.gap, gap);
  }
  return result;
}

}  // namespace haul::cli
