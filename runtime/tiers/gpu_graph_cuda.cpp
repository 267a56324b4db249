#include <map>
#include <mutex>

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
  GpuPoint replayed;  // behind the last of them
};

Recorder& recorder_of(int index) {
  static std::mutex mutex;
  static auto& recorders = *new std::map<int, Recorder>;  // events cannot outlive the driver
  const std::lock_guard lock(mutex);
  return recorders.try_emplace(index, index).first->second;
}

bool has_ended(at::cuda::CUDAGraph& graph) {
  try {
    graph.pool();
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

// Of a recording that fails before it has ended torch's allocator may still ask the graph: it
// stays.
void end(std::unique_ptr<at::cuda::CUDAGraph>& graph) {
  try {
    graph->capture_end();
  } catch (...) {
    if (!has_ended(*graph)) static_cast<void>(graph.release());
    throw;
  }
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
      end(state_->graph);
    } catch (const c10::Error&) {  // the first failure is the one to tell
    }
    throw;
  }
  end(state_->graph);
}

GpuPoint GpuGraph::replay() {
  const int index = state_->index;
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(index));
  Recorder& recorder = recorder_of(index);
  const std::lock_guard lock(recorder.mutex);
  current_stream_waits(index, recorder.replayed);
  state_->graph->replay();
  recorder.replayed = point_of_current_stream(index);
  return recorder.replayed;
}

}  // namespace haul::runtime
