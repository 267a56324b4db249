#include "runtime/generate/pass_runner.h"

#include <utility>

#include "haul/error.h"
#include "runtime/generate/state.h"

namespace haul::runtime {
namespace {

class LocalRunner final : public PassRunner {
 public:
  explicit LocalRunner(LoadedModel::State& state) : passes_(state) {}

  void begin(std::int64_t capacity) override { passes_.begin(capacity); }
  at::Tensor forward(models::Inputs inputs) override {
    return passes_.forward(std::move(inputs), {});
  }
  bool goes_ahead() const override { return passes_.goes_ahead(); }
  void start(const at::Tensor& ids) override { passes_.start(ids); }
  at::Tensor take() override { return passes_.take(); }
  void repeat(std::int64_t times) override { passes_.repeat(times); }
  void reorder(const at::Tensor& rows) override { passes_.reorder(rows); }

 private:
  LayerPasses passes_;
};

}  // namespace

void PassRunner::start(const at::Tensor& /*ids*/) {
  throw Error(ErrorKind::kInternal, "passes that cannot go ahead");
}
at::Tensor PassRunner::take() {
  throw Error(ErrorKind::kInternal, "passes that cannot go ahead");
}

void LayerPasses::begin(std::int64_t capacity) {
  cache_.reset();  // its room is used again
  cache_.emplace(state_.windows, capacity, state_.kv_room.get(),
                 state_.plan.kv_in_ram ? make_kv_link(state_.device.index()) : nullptr);
  if (state_.replayed) state_.replayed->drop_started();
}

at::Tensor LayerPasses::forward(models::Inputs inputs, const at::Tensor& x) {
  const std::int64_t tokens = inputs.ids.size(1);
  inputs.cache = &*cache_;
  cache_->look_at(inputs.first_row, inputs.sequences);
  // What is recorded is of all sequences.
  const bool replays = inputs.sequences == 0 && goes_ahead() && !x.defined() && tokens == 1 &&
                       !inputs.attended.defined();
  if (replays) ++state_.figures.replayed;
  at::Tensor result = replays ? state_.replayed->forward(inputs.ids, *cache_)
                              : state_.pass(inputs.to(state_.device), x);
  cache_->advance(tokens);
  return result;
}

// The first pass takes the cache's room, which is no part of what is recorded.
bool LayerPasses::goes_ahead() const {
  return state_.replayed && cache_->keeps_all() && cache_->length() > 0;
}

at::Tensor LayerPasses::take() {
  return state_.replayed->take();
}

void LayerPasses::start(const at::Tensor& ids) {
  ++state_.figures.replayed;
  state_.replayed->start(ids, *cache_);
  cache_->advance(1);
}

std::unique_ptr<PassRunner> make_local_runner(LoadedModel::State& state) {
  return std::make_unique<LocalRunner>(state);
}

}  // namespace haul::runtime
