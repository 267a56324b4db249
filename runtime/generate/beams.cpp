#include "runtime/generate/beams.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace haul::runtime {
namespace {

// In single precision, as the scores are.
float by_length(float score, std::size_t length, double penalty) {
  return score / static_cast<float>(std::pow(static_cast<double>(length), penalty));
}

}  // namespace

Beams::Beams(const BeamSettings& settings, std::vector<TokenId> stop_tokens, std::int64_t most)
    : settings_(settings),
      count_(static_cast<std::size_t>(settings.count)),
      stop_tokens_(std::move(stop_tokens)),
      most_(static_cast<std::size_t>(most)),
      running_(1) {}

std::size_t Beams::candidates() const {
  return std::max<std::size_t>(2, 1 + stop_tokens_.size()) * count_;
}

bool Beams::stops(const Beam& beam) const {
  return !beam.ids.empty() &&
         std::find(stop_tokens_.begin(), stop_tokens_.end(), beam.ids.back()) != stop_tokens_.end();
}

void Beams::step(std::span<const Candidate> best) {
  std::vector<Beam> next;
  for (std::size_t i = 0; i < best.size(); ++i) {
    const Candidate& candidate = best[i];
    Beam beam{candidate.beam, running_[candidate.beam].ids, candidate.score};
    beam.ids.push_back(candidate.id);
    if (!stops(beam) && beam.ids.size() < most_) {
      if (next.size() < count_) next.push_back(std::move(beam));
    } else if (i < count_) {
      // What comes after is there to go on with, not to be complete.
      add_complete(std::move(beam));
    }
  }
  running_ = std::move(next);
  const bool enough = settings_.early_stopping == EarlyStopping::kYes && full();
  ended_ = running_.empty() || enough || !can_improve();
}

void Beams::add_complete(Beam beam) {
  beam.score = by_length(beam.score, beam.ids.size(), settings_.length_penalty);
  const auto place = std::find_if(complete_.begin(), complete_.end(),
                                  [&](const Beam& other) { return beam.score > other.score; });
  complete_.insert(place, std::move(beam));
  if (complete_.size() > count_) complete_.pop_back();
}

bool Beams::can_improve() const {
  if (!full()) return true;
  const bool longest =
      settings_.early_stopping == EarlyStopping::kNever && settings_.length_penalty > 0;
  const Beam& first = running_.front();
  return by_length(first.score, longest ? most_ : first.ids.size(), settings_.length_penalty) >
         complete_.back().score;
}

}  // namespace haul::runtime
