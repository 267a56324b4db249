#pragma once

// Work of the CPU in the order of a GPU's stream, by threads of its own (as many as torch has, less
// the cores that drive the GPU), so that whoever gives the stream its work waits for none of it. In
// a build without the CUDA part there is none, and what needs one throws Error(kUnsupported). One
// caller at a time.

#include <cstddef>
#include <functional>
#include <memory>

namespace haul::runtime {

class HostWork {
 public:
  explicit HostWork(int gpu);
  HostWork(const HostWork&) = delete;
  HostWork& operator=(const HostWork&) = delete;
  ~HostWork();  // leaves out what no thread has begun, and waits for the GPU

  // What the caller's current stream has been given so far comes before the work.
  void begin();
  // What it is given from now on comes after the work, which is called for every piece from 0, by
  // several threads at once, and must not throw. REQUIRES: begin(); pieces > 0.
  void finish(std::size_t pieces, std::function<void(std::size_t)> work);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace haul::runtime
