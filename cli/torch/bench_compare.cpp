#include "cli/torch/bench_compare.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace haul::cli {
namespace {

// `top`: the likeliest by the peer, the one it took first, and their logits.
bool is_tie(const core::Json& top, TokenId ours, TokenId peers, double tolerance) {
  const auto names = top.at(0).get<std::vector<TokenId>>();
  const auto logits = top.at(1).get<std::vector<double>>();
  const auto found = static_cast<std::size_t>(std::ranges::find(names, ours) - names.begin());
  return std::ranges::count(names, peers) == 1 && found < names.size() &&
         std::abs(logits[0] - logits[found]) <= tolerance * std::abs(logits[0]);
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
    if (!is_tie(tops.at(i).at(at), *a, *b, tolerance)) {
      return {false,
              {},
              fmt::format("prompt {}: token {} is {}, the peer's {}", i + 1, at + 1, *a, *b)};
    }
    result.tie = std::min(result.tie.value_or(at + 1), at + 1);
  }
  return result;
}

}  // namespace haul::cli
