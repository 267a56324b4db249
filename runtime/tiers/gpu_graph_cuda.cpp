#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "haul/error.h"
#include "runtime/tiers/gpu_graph.h"

namespace haul::runtime {

struct GpuGraph::State {
  int index = 0;
  at::cuda::CUDAGraph graph;
};

GpuGraph::GpuGraph(int index) : state_(std::make_unique<State>()) {
  state_->index = index;
}

GpuGraph::~GpuGraph() = default;

void GpuGraph::record(const std::function<void()>& work) {
  // Work cannot be recorded on the usual stream.
  const c10::cuda::CUDAStreamGuard guard(
      c10::cuda::getStreamFromPool(false, static_cast<c10::DeviceIndex>(state_->index)));
  // What other threads do meanwhile is theirs.
  state_->graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  try {
    work();
  } catch (...) {
    try {
      state_->graph.capture_end();
    } catch (const c10::Error&) {
      // The first failure is the one to tell.
    }
    throw;
  }
  state_->graph.capture_end();
}

void GpuGraph::replay() {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(state_->index));
  state_->graph.replay();
}

}  // namespace haul::runtime
