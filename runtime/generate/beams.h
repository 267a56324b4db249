#pragma once

// Several continuations of one prompt side by side, of which the likeliest as a whole is taken.
// Pure: which ones go on, which are complete, and when it is over.

#include <cstdint>
#include <span>
#include <vector>

#include "haul/tokenizer.h"
#include "haul/torch/model.h"

namespace haul::runtime {

struct BeamSettings {
  std::int64_t count = 1;
  double length_penalty = 1;
  EarlyStopping early_stopping = EarlyStopping::kNo;
};

// A beam and the token that it may go on with.
struct Candidate {
  std::size_t beam = 0;
  TokenId id = 0;
  float score = 0;  // the sum of the logarithms of its tokens' probabilities
};

class Beams {
 public:
  struct Beam {
    std::size_t from = 0;  // which of the beams before the last step it was
    std::vector<TokenId> ids;
    float score = 0;
  };

  // Continuations get no longer than `most` tokens.
  Beams(const BeamSettings& settings, std::vector<TokenId> stop_tokens, std::int64_t most);

  // One at the beginning, then as many as the settings say.
  const std::vector<Beam>& running() const { return running_; }
  // So many are needed in a step, so that enough of them are not complete.
  std::size_t candidates() const;
  // The likeliest of all running beams with all tokens, the best first.
  void step(std::span<const Candidate> best);
  bool ended() const { return ended_; }
  // The best that is complete; where none is, the best that runs.
  const Beam& best() const { return complete_.empty() ? running_.front() : complete_.front(); }
  bool stops(const Beam& beam) const;  // whether its last token is one that stops

 private:
  bool full() const { return complete_.size() == count_; }
  void add_complete(Beam beam);
  bool can_improve() const;

  BeamSettings settings_;
  std::size_t count_;
  std::vector<TokenId> stop_tokens_;
  std::size_t most_;
  std::vector<Beam> running_;   // the best first
  std::vector<Beam> complete_;  // likewise, their scores by length
  bool ended_ = false;
};

}  // namespace haul::runtime
