#pragma once

// How a group of sequences goes through a model, pass after pass. One thread.

#include <cstdint>
#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>

#include "haul/torch/model.h"
#include "models/families/model.h"
#include "runtime/generate/kv_cache.h"

namespace haul::runtime {

class PassRunner {
 public:
  virtual ~PassRunner() = default;

  // Before any pass: the tokens that a sequence may grow to.
  virtual void begin(std::int64_t capacity) = 0;
  // Gives the logits; `inputs.cache` is the runner's own.
  virtual at::Tensor forward(models::Inputs inputs) = 0;
  // Whether, once begun, it may go on with the likeliest tokens by itself. As in ReplayedPass.
  virtual bool goes_ahead() const { return false; }
  virtual void start(const at::Tensor& ids);
  virtual at::Tensor take();
  // Each sequence becomes so many of the same, side by side.
  virtual void repeat(std::int64_t times) = 0;
  // Sequence i becomes what sequence rows[i] was, of the same prompt.
  virtual void reorder(const at::Tensor& rows) = 0;
};

// The layers that are loaded here, with what they remember.
class LayerPasses {
 public:
  explicit LayerPasses(LoadedModel::State& state) : state_(state) {}

  void begin(std::int64_t capacity);
  // `x` is what the layers before gave, undefined for the first.
  at::Tensor forward(models::Inputs inputs, const at::Tensor& x);
  bool goes_ahead() const;
  void start(const at::Tensor& ids);
  at::Tensor take();
  void repeat(std::int64_t times) { cache_->repeat(times); }
  void reorder(const at::Tensor& rows) { cache_->reorder(rows); }

 private:
  LoadedModel::State& state_;
  std::optional<ModelCache> cache_;
};

// Through the whole model, in this process.
std::unique_ptr<PassRunner> make_local_runner(LoadedModel::State& state);

}  // namespace haul::runtime
