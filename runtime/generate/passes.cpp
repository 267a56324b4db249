#include "runtime/generate/passes.h"

#include <algorithm>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include "haul/error.h"
#include "haul/estimate.h"
#include "runtime/generate/input_ids.h"

namespace haul::runtime {
namespace {

// Nobody looks at it, but it must have a row; some configs name one beyond the last.
std::int64_t padding_of(const LoadedModel::State& state) {
  const GenerationConfig& config = state.generation;
  const std::int64_t id =
      config.padding.value_or(config.stop_tokens.empty() ? 0 : config.stop_tokens.front());
  return id < state.dimensions().vocabulary ? id : 0;
}

std::size_t longest_of(const std::vector<std::vector<TokenId>>& prompts) {
  std::size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  return longest;
}

}  // namespace

TokenId start_of(const LoadedModel::State& state) {
  return state.generation.decoder_start.value_or(static_cast<TokenId>(padding_of(state)));
}

Passes::Passes(LoadedModel::State& state, const std::vector<std::vector<TokenId>>& prompts)
    : state_(state),
      prompts_(prompts),
      padding_(padding_of(state)),
      room_(room_after(longest_of(prompts))),
      runner_(state.make_runner ? state.make_runner() : make_local_runner(state)) {
  set_inputs();
}

std::int64_t Passes::room_after(std::size_t longest) const {
  const std::int64_t room =
      state_.context - (has_encoder() ? 1 : static_cast<std::int64_t>(longest));
  if (room >= 1) return room;
  throw Error(ErrorKind::kUsage,
              fmt::format("the prompt has {} tokens, and the context {}", longest, state_.context),
              "shorten the prompt, or plan for a longer context");
}

std::vector<TokenId> Passes::beginning(std::size_t row) const {
  return has_encoder() ? std::vector<TokenId>{start_of(state_)} : prompts_.at(row);
}

// Shorter prompts are padded: on the left, so that all end at the same place, or for an encoder on
// the right.
void Passes::set_inputs() {
  for (const auto& prompt : prompts_) {
    if (prompt.empty()) throw Error(ErrorKind::kUsage, "there is no prompt: it has no tokens");
  }
  const auto rows = static_cast<std::int64_t>(prompts_.size());
  const auto columns = static_cast<std::int64_t>(longest_of(prompts_));
  ids_ = at::full({rows, columns}, padding_, at::kLong);
  bool padded = false;
  at::Tensor attended = at::ones({rows, columns}, at::kBool);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto& prompt = prompts_[static_cast<std::size_t>(row)];
    const std::int64_t empty = columns - static_cast<std::int64_t>(prompt.size());
    std::copy(prompt.begin(), prompt.end(),
              ids_.mutable_data_ptr<std::int64_t>() + row * columns + (has_encoder() ? 0 : empty));
    if (empty == 0) continue;
    attended[row].narrow(0, has_encoder() ? columns - empty : 0, empty).fill_(false);
    padded = true;
  }
  check_ids(ids_, state_);
  if (!padded) return;
  attended_ = attended;
  positions_ = (attended.to(at::kLong).cumsum(1) - 1).clamp_min(0);
}

// The encoder reads the prompts, and the decoder begins with a token of its own.
void Passes::encode_prompts() {
  models::Inputs inputs{ids_};
  inputs.attended = attended_;
  encoded_ = state_.model->encode(inputs.to(state_.device));
  encoded_attended_ = std::exchange(attended_, {});
  ids_ = at::full({ids_.size(0), 1}, static_cast<std::int64_t>(start_of(state_)), at::kLong);
  check_ids(ids_, state_);
}

at::Tensor Passes::forward(models::Inputs inputs) {
  inputs.last = 1;
  inputs.encoded = encoded_;
  inputs.encoded_attended = encoded_attended_;
  return runner_->forward(std::move(inputs));
}

at::Tensor Passes::read_prompts(std::int64_t new_tokens, const std::atomic<bool>* cancel) {
  if (has_encoder()) encode_prompts();
  runner_->begin(ids_.size(1) + new_tokens);
  const std::int64_t all = ids_.size(0);
  const PromptPart part = has_encoder()
                              ? PromptPart{all, 1}
                              : prompt_part(state_.plan.batch, state_.context, ids_.size(1));
  std::vector<at::Tensor> logits;
  for (std::int64_t row = 0; row < all; row += part.rows) {
    const std::int64_t rows = std::min(part.rows, all - row);
    const auto some = [&](const at::Tensor& of, std::int64_t begin, std::int64_t end) {
      return of.defined() ? of.narrow(0, row, rows).narrow(1, begin, end - begin) : of;
    };
    for (std::int64_t at = 0; at < ids_.size(1); at += part.tokens) {
      if (cancel != nullptr && cancel->load()) return {};
      const std::int64_t end = std::min(at + part.tokens, ids_.size(1));
      models::Inputs inputs{some(ids_, at, end)};
      inputs.attended = some(attended_, 0, end);
      inputs.positions = some(positions_, at, end);
      if (rows < all) {
        inputs.first_row = row;
        inputs.sequences = all;
      }
      at::Tensor last = forward(std::move(inputs));
      if (end == ids_.size(1)) logits.push_back(std::move(last));
    }
  }
  return logits.size() == 1 ? logits.front() : at::cat(logits);
}

at::Tensor Passes::read(const at::Tensor& ids) {
  models::Inputs inputs{ids};
  if (attended_.defined()) {
    attended_ = at::cat({attended_, at::ones({ids.size(0), 1}, at::kBool)}, 1);
    positions_ = positions_.narrow(1, positions_.size(1) - 1, 1) + 1;
    inputs.attended = attended_;
    inputs.positions = positions_;
  }
  return forward(std::move(inputs));
}

void Passes::repeat(std::int64_t times) {
  runner_->repeat(times);
  for (at::Tensor* some : {&attended_, &positions_, &encoded_attended_}) {
    if (some->defined()) *some = some->repeat_interleave(times, 0);
  }
}

}  // namespace haul::runtime
