#pragma once

// The pass of one token of each sequence, recorded on a GPU once and run again as a whole, so that
// the host has nothing to do between its kernels. With it the GPU picks the likeliest token, and
// may go on with that before the host has seen it. One thread.

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "models/families/model.h"
#include "runtime/generate/kv_cache.h"
#include "runtime/tiers/gpu.h"
#include "runtime/tiers/gpu_graph.h"

namespace haul::runtime {

class ReplayedPass {
 public:
  static constexpr std::int64_t kAhead = 4;

  // Runs a pass through the model.
  using Run = std::function<at::Tensor(const models::Inputs& inputs)>;

  ReplayedPass(at::Device device, Run run) : device_(device), run_(std::move(run)) {}
  ReplayedPass(const ReplayedPass&) = delete;
  ReplayedPass& operator=(const ReplayedPass&) = delete;
  ~ReplayedPass() { settle(last_); }

  // The logits after a new token of each sequence, ids (B, 1). They are overwritten by the next
  // pass.
  at::Tensor forward(const at::Tensor& ids, ModelCache& cache);

  // Starts a pass: after these ids, or if they are undefined after the likeliest ones of the pass
  // before. Up to kAhead may be started and not taken yet.
  void start(const at::Tensor& ids, ModelCache& cache);
  // Waits for the first pass that was started and not taken yet. The likeliest ids (B) after it.
  at::Tensor take();
  // What was started is of no interest any more. It ends before what the caller's stream is given
  // from now on.
  void drop_started();

 private:
  struct Started {
    std::int64_t slot;
    GpuPoint point;
  };

  // Until no pass writes to the host's memory any more.
  void set_numbers(const at::Tensor& ids, std::int64_t past);
  void run(ModelCache& cache);
  void work(ModelCache& cache);

  at::Device device_;
  Run run_;
  std::vector<const void*> addresses_;  // of the cache that it was recorded with
  at::Tensor numbers_;  // on the device: the ids, then how many tokens there are before them
  at::Tensor told_;     // on the host: the ids of the last passes
  bool warm_ = false;
  std::unique_ptr<GpuGraph> graph_;
  at::Tensor logits_;
  std::deque<Started> started_;
  GpuPoint last_;  // after the last pass
};

}  // namespace haul::runtime
