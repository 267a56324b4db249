#include <map>
#include <mutex>

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "haul/error.h"
#include "runtime/tiers/gpu_graph.h"

namespace haul::runtime {
namespace {

// The same stream for all recordings of a GPU, one after the other: cuBLAS keeps a workspace for
// each that it has seen. What was recorded shares that, so no two of them may run at once.
struct Recorder {
  explicit Recorder(int index)
      : stream(c10::cuda::getStreamFromPool(false, static_cast<c10::DeviceIndex>(index))) {}

  std::mutex mutex;
  c10::cuda::CUDAStream stream;
  at::cuda::CUDAEvent replayed;  // behind the last of them
};

Recorder& recorder_of(int index) {
  static std::mutex mutex;
  static auto& recorders = *new std::map<int, Recorder>;  // events cannot outlive the driver
  const std::lock_guard lock(mutex);
  return recorders.try_emplace(index, index).first->second;
}

}  // namespace

struct GpuGraph::State {
  int index = 0;
  std::unique_ptr<at::cuda::CUDAGraph> graph = std::make_unique<at::cuda::CUDAGraph>();
};

GpuGraph::GpuGraph(int index) : state_(std::make_unique<State>()) {
  state_->index = index;
}

GpuGraph::~GpuGraph() = default;

void GpuGraph::record(const std::function<void()>& work) {
  Recorder& recorder = recorder_of(state_->index);
  const std::lock_guard lock(recorder.mutex);
  // Work cannot be recorded on the usual stream.
  const c10::cuda::CUDAStreamGuard guard(recorder.stream);
  try {
    // What other threads do meanwhile is theirs.
    state_->graph->capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  } catch (...) {
    // Without memory for torch's random numbers: its destructor would end the process, because the
    // generator does not know a graph that knows it. What is left is empty.
    static_cast<void>(state_->graph.release());
    throw;
  }
  try {
    work();
  } catch (...) {
    try {
      state_->graph->capture_end();
    } catch (const c10::Error&) {
      // The first failure is the one to tell. Torch's allocator may still ask this one.
      static_cast<void>(state_->graph.release());
    }
    throw;
  }
  state_->graph->capture_end();
}

void GpuGraph::replay() {
  const auto device = static_cast<c10::DeviceIndex>(state_->index);
  const c10::cuda::CUDAGuard guard(device);
  const c10::cuda::CUDAStream current = c10::cuda::getCurrentCUDAStream(device);
  Recorder& recorder = recorder_of(state_->index);
  const std::lock_guard lock(recorder.mutex);
  recorder.replayed.block(current);
  state_->graph->replay();
  recorder.replayed.record(current);
}

}  // namespace haul::runtime
