#pragma once

// Picks the next token from its logits. Pure: the same logits, settings, seed and place give the
// same token on every machine.

#include <cstdint>
#include <span>
#include <vector>

#include "haul/tokenizer.h"

namespace haul::runtime {

struct Sampling {
  bool greedy = true;
  double temperature = 1;
  std::int64_t top_k = 0;  // 0: all
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
  std::uint64_t seed = 0;
};

// Makes tokens that were seen less likely.
void penalise(std::span<float> logits, std::span<const TokenId> seen, double penalty);

// `row` and `step` say which random number is used.
TokenId pick(std::span<const float> logits, const Sampling& sampling, std::uint64_t row,
             std::uint64_t step);

// In [0, 1), from 64 bits that depend on all three.
double random_number(std::uint64_t seed, std::uint64_t row, std::uint64_t step);

}  // namespace haul::runtime
