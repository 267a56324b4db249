#pragma once

// Prompts of any lengths through a model at once, then a token of each at a time.

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "models/families/model.h"
#include "runtime/generate/pass_runner.h"
#include "runtime/generate/state.h"

namespace haul::runtime {

// What the decoder of a model with an encoder begins with.
TokenId start_of(const LoadedModel::State& state);

class Passes {
 public:
  // Throws Error(kUsage) for prompts that are empty, leave no room in the context or have tokens
  // that the model does not know.
  Passes(LoadedModel::State& state, const std::vector<std::vector<TokenId>>& prompts);

  // New tokens that the context has room for, at least one.
  std::int64_t room() const { return room_; }
  // Any token, for a sequence that has ended.
  std::int64_t padding() const { return padding_; }
  // What each new token of a sequence comes after: its prompt, or what a decoder begins with.
  std::vector<TokenId> beginning(std::size_t row) const;

  // The logits (B, 1, V) after the last token; undefined: cancelled before the end. At most
  // `new_tokens` follow.
  at::Tensor read_prompts(std::int64_t new_tokens, const std::atomic<bool>* cancel);
  // The same after a new token of each, (B, 1).
  at::Tensor read(const at::Tensor& ids);

  // After the prompts: whether passes may go on with the likeliest tokens by themselves. One is
  // started after new ids (B, 1), or if they are undefined after the likeliest of the pass before;
  // take() gives the likeliest (B) after the first that was not taken yet.
  bool goes_ahead() const {
    return !attended_.defined() && !has_encoder() && runner_->goes_ahead();
  }
  void start(const at::Tensor& ids) { runner_->start(ids); }
  at::Tensor take() { return runner_->take(); }

  // Each sequence becomes so many of the same, side by side.
  void repeat(std::int64_t times);
  // Sequence i becomes what sequence rows[i] was, of the same prompt.
  void reorder(const at::Tensor& rows) { runner_->reorder(rows); }

 private:
  bool has_encoder() const { return state_.dimensions().encoder_layers > 0; }
  std::int64_t room_after(std::size_t longest) const;
  void set_inputs();
  void encode_prompts();
  at::Tensor forward(models::Inputs inputs);

  LoadedModel::State& state_;
  const std::vector<std::vector<TokenId>>& prompts_;
  std::int64_t padding_;
  std::int64_t room_;
  std::unique_ptr<PassRunner> runner_;
  at::Tensor ids_;        // (B, T) of the prompts
  at::Tensor attended_;   // (B, S); undefined: no padding
  at::Tensor positions_;  // likewise
  at::Tensor encoded_;    // (B, E, C) of a model with an encoder
  at::Tensor encoded_attended_;
};

}  // namespace haul::runtime
