#include "runtime/generate/beam_search.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>

#include "runtime/generate/sampler.h"

namespace haul::runtime {
namespace {

// The likeliest continuations of the beams of one prompt, whose tokens' log probabilities are
// (beams, V).
std::vector<Candidate> likeliest(const at::Tensor& scores, const Beams& beams, const Passes& passes,
                                 std::size_t prompt, double penalty) {
  const auto width = static_cast<std::size_t>(scores.size(1));
  for (std::size_t i = 0; i < beams.running().size(); ++i) {
    const Beams::Beam& beam = beams.running()[i];
    const std::span<float> row(scores.data_ptr<float>() + i * width, width);
    if (penalty != 1) {
      std::vector<TokenId> seen = passes.beginning(prompt);
      seen.insert(seen.end(), beam.ids.begin(), beam.ids.end());
      penalise(row, seen, penalty);
    }
    for (float& score : row) score += beam.score;
  }
  const auto count = std::min(static_cast<std::int64_t>(beams.candidates()), scores.numel());
  const auto [best, places] = at::topk(scores.flatten(), count);
  std::vector<Candidate> result;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto place = static_cast<std::size_t>(places.const_data_ptr<std::int64_t>()[i]);
    result.push_back(
        {place / width, static_cast<TokenId>(place % width), best.const_data_ptr<float>()[i]});
  }
  return result;
}

// The rows of a step: which sequence each was, and its new token.
struct Rows {
  std::vector<std::int64_t> from;
  at::Tensor ids;  // (B, 1)
};
Rows rows_of(const std::vector<Beams>& all, std::int64_t width, std::int64_t padding) {
  Rows rows;
  rows.from.resize(all.size() * static_cast<std::size_t>(width));
  std::iota(rows.from.begin(), rows.from.end(), 0);
  rows.ids = at::full({static_cast<std::int64_t>(rows.from.size()), 1}, padding, at::kLong);
  auto* const ids = rows.ids.mutable_data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].ended()) continue;
    const std::size_t first = i * static_cast<std::size_t>(width);
    for (std::size_t j = 0; j < all[i].running().size(); ++j) {
      const Beams::Beam& beam = all[i].running()[j];
      rows.from[first + j] = static_cast<std::int64_t>(first + beam.from);
      ids[first + j] = beam.ids.back();
    }
  }
  return rows;
}

Generated result_of(const Beams& beams) {
  Generated result;
  result.ids = beams.best().ids;
  if (!beams.ended()) {
    result.reason = StopReason::kCancelled;
  } else {
    result.reason = beams.stops(beams.best()) ? StopReason::kStopToken : StopReason::kLength;
  }
  return result;
}

}  // namespace

std::vector<Generated> search_beams(Passes& passes, std::size_t prompts, const BeamSearch& search) {
  std::vector<Beams> all(prompts, Beams(search.settings, search.stop_tokens, search.most));
  const auto going = [&] {
    return std::count_if(all.begin(), all.end(), [](const Beams& beams) { return !beams.ended(); });
  };
  at::Tensor logits = passes.read_prompts(search.most, search.cancel);
  std::int64_t width = 1;  // rows for each prompt
  while (logits.defined()) {
    const at::Tensor scores = at::log_softmax(logits.select(1, 0).to(at::kCPU, at::kFloat), -1)
                                  .contiguous();  // (B * width, V)
    for (std::size_t i = 0; i < prompts; ++i) {
      if (all[i].ended()) continue;
      const auto rows = static_cast<std::int64_t>(all[i].running().size());
      all[i].step(likeliest(scores.narrow(0, static_cast<std::int64_t>(i) * width, rows), all[i],
                            passes, i, search.repetition_penalty));
    }
    search.on_step(going());
    if (going() == 0 || (search.cancel != nullptr && search.cancel->load())) break;
    if (width == 1) passes.repeat(width = search.settings.count);
    const Rows rows = rows_of(all, width, passes.padding());
    const bool moved = std::adjacent_find(rows.from.begin(), rows.from.end(),
                                          std::greater_equal<>()) != rows.from.end();
    if (moved) {
      passes.reorder(at::tensor(rows.from, at::kLong));
    }
    logits = passes.read(rows.ids);
  }
  std::vector<Generated> results;
  results.reserve(prompts);
  for (const Beams& beams : all) results.push_back(result_of(beams));
  return results;
}

}  // namespace haul::runtime
