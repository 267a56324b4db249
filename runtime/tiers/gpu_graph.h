#pragma once

// Work on a GPU that is recorded once and run again as a whole by one call. In a build without the
// CUDA part there is none, and what needs one throws Error(kUnsupported). Each of one thread at a
// time; those of one GPU run one after the other, whatever streams they are given to.

#include <functional>
#include <memory>

#include "runtime/tiers/gpu.h"

namespace haul::runtime {

class GpuGraph {
 public:
  explicit GpuGraph(int index);
  GpuGraph(const GpuGraph&) = delete;
  GpuGraph& operator=(const GpuGraph&) = delete;
  ~GpuGraph();

  // Keeps what `work` gives to the current stream, and runs none of it. It must not look at the
  // GPU's numbers. Tensors that are made in it stay where they are as long as this lives.
  void record(const std::function<void()>& work);
  // Gives all of it to the caller's current stream. The point behind it.
  GpuPoint replay();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace haul::runtime
