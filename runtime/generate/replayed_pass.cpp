#include "runtime/generate/replayed_pass.h"

#include <utility>

#include <ATen/ops/empty.h>

#include "haul/error.h"
#include "kernels/likeliest.h"
#include "kernels/tell.h"

namespace haul::runtime {
namespace {

// While passes are to be recorded.
class Replaying {
 public:
  Replaying(ModelCache& cache, const at::Tensor& past) : cache_(cache) { cache.set_past(past); }
  Replaying(const Replaying&) = delete;
  Replaying& operator=(const Replaying&) = delete;
  ~Replaying() { cache_.set_past({}); }

 private:
  ModelCache& cache_;
};

}  // namespace

void ReplayedPass::set_numbers(const at::Tensor& ids, std::int64_t past) {
  const std::int64_t batch = ids.size(0);
  if (!numbers_.defined() || numbers_.size(0) != batch + 1) {
    graph_.reset();
    settle(last_);
    numbers_.reset();  // neither, until both are there
    told_ = at::empty({kAhead, batch}, at::TensorOptions(at::kLong).pinned_memory(true));
    numbers_ = at::empty({batch + 1}, at::TensorOptions().dtype(at::kLong).device(device_));
  }
  const at::Tensor now = at::empty({batch + 1}, at::kLong);
  now.narrow(0, 0, batch).copy_(ids.view({batch}));
  now[batch] = past;
  numbers_.copy_(now, true);
}

// Leaves the numbers for the pass that goes on with the likeliest ids.
void ReplayedPass::work(ModelCache& cache) {
  const std::int64_t batch = numbers_.size(0) - 1;
  at::Tensor ids = numbers_.narrow(0, 0, batch);
  at::Tensor past = numbers_.narrow(0, batch, 1);
  models::Inputs inputs{ids.view({batch, 1})};
  inputs.positions = past.view({1, 1});
  inputs.cache = &cache;
  at::Tensor logits = run_(inputs);
  kernels::likeliest_into(logits.select(1, 0), ids);
  kernels::tell(ids, past, told_);
  logits_ = std::move(logits);  // last: of a recording that fails nothing stays
}

void ReplayedPass::run(ModelCache& cache) {
  std::vector<const void*> addresses = cache.addresses();
  if (addresses != addresses_) graph_.reset();
  addresses_ = std::move(addresses);
  const Replaying scope(cache, numbers_.narrow(0, numbers_.size(0) - 1, 1));
  if (!warm_) {
    // Once as it is: kernels are loaded, and libraries take what they need.
    work(cache);
    warm_ = true;
    last_ = point_of_current_stream(device_.index());
  } else {
    if (!graph_) {
      auto graph = std::make_unique<GpuGraph>(device_.index());
      graph->record([&] { work(cache); });
      graph_ = std::move(graph);
    }
    last_ = graph_->replay();
  }
}

at::Tensor ReplayedPass::forward(const at::Tensor& ids, ModelCache& cache) {
  set_numbers(ids, cache.length());
  run(cache);
  return logits_;
}

void ReplayedPass::start(const at::Tensor& ids, ModelCache& cache) {
  if (started_.size() == kAhead) {
    throw Error(ErrorKind::kInternal, "so many passes were started that one would be lost");
  }
  if (ids.defined()) set_numbers(ids, cache.length());
  run(cache);
  started_.push_back({cache.length() % kAhead, last_});
}

void ReplayedPass::drop_started() {
  started_.clear();
  current_stream_waits(device_.index(), last_);
}

at::Tensor ReplayedPass::take() {
  const Started first = std::move(started_.front());
  started_.pop_front();
  wait_for(first.point);
  return told_[first.slot].clone();
}

}  // namespace haul::runtime
