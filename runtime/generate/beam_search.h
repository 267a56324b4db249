#pragma once

// Decoding over beams: all beams of all prompts go through the model together.

#include <functional>
#include <vector>

#include "haul/torch/model.h"
#include "runtime/generate/beams.h"
#include "runtime/generate/passes.h"

namespace haul::runtime {

struct BeamSearch {
  BeamSettings settings;
  double repetition_penalty = 1;
  std::vector<TokenId> stop_tokens;
  std::int64_t most = 1;  // new tokens
  const std::atomic<bool>* cancel = nullptr;
  // After each step with how many of the prompts went on.
  std::function<void(std::int64_t)> on_step;
};

// For each of so many prompts the likeliest continuation, without its text.
std::vector<Generated> search_beams(Passes& passes, std::size_t prompts, const BeamSearch& search);

}  // namespace haul::runtime
