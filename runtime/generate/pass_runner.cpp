#include "runtime/generate/pass_runner.h"

#include <utility>

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
  void repeat(std::int64_t times) override { passes_.repeat(times); }
  void reorder(const at::Tensor& rows) override { passes_.reorder(rows); }

 private:
  LayerPasses passes_;
};

}  // namespace

void LayerPasses::begin(std::int64_t capacity) {
  cache_.reset();  // its room is used again
  cache_.emplace(state_.windows, capacity, state_.kv_room.get());
}

at::Tensor LayerPasses::forward(models::Inputs inputs, const at::Tensor& x) {
  inputs = inputs.to(state_.device);
  inputs.cache = &*cache_;
  const bool can_be_cut = state_.layers.end > 0;
  at::Tensor result = can_be_cut ? state_.model->forward_part(inputs, state_.layers, x)
                                 : state_.model->forward(inputs);
  cache_->advance(inputs.ids.size(1));
  return result;
}

std::unique_ptr<PassRunner> make_local_runner(LoadedModel::State& state) {
  return std::make_unique<LocalRunner>(state);
}

}  // namespace haul::runtime
