#pragma once

// Whether two programs that run the same model said the same.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "haul/tokenizer.h"

namespace haul::cli {

struct Comparison {
  bool same = true;                // to the end, or to a tie
  std::optional<std::size_t> tie;  // the first token, from 1, at which an answer met one
  std::string difference;          // for people, where they are not the same
  double gap = 0;                  // the largest of all ties, as a share of the logit
};

using Answers = std::vector<std::vector<TokenId>>;

// Of the prompts that both have answered. `tops` has for each of the peer's answers, and for each
// token of it, the likeliest tokens and their logits: [[a, b, …], [x, y, …]]. Where two answers
// part at tokens that are among those, and nearer to each other than `tolerance` of their size,
// rounding decides: that is a tie, and behind it nothing can be compared.
Comparison compare(const Answers& ours, const Answers& peers, const core::Json& tops,
                   double tolerance);

}  // namespace haul::cli
