#pragma once

// A scope that brings one module of a dispatched model in for a moment, to look at its weights or
// to change them by code that is no op.

#include <memory>
#include <optional>

#include <c10/core/Device.h>

#include "haul/torch/dispatch.h"

namespace haul {

// While it lives, the parameters and buffers of the module, and of those below it, are ordinary
// tensors with their values, on the device named or, by default, where each is used:
//
//   {
//     const haul::AlignModuleDevice scope(*gpt->blocks[3], torch::kCPU);
//     weight->data_ptr<float>()[0] = 1;
//   }
//
// Afterwards they lie where they did before. What was written to them stays: at the end they are
// compared with what is kept (which reads offloaded ones once more), and those that differ are
// written there, in RAM; a file is never changed. A tensor that shares the memory of one, taken
// inside and kept, has a copy of its own from then on.
//
// The memory is the scope's own, beside what was planned for the model. A module that is no part of
// a dispatched model may be given, too. One thread: while the scope begins and ends, nobody runs
// the module; meanwhile the rest of the model may be run. Scopes end in the reverse order.
class AlignModuleDevice {
 public:
  // Where a weight cannot be had, an Error names it and nothing has changed.
  explicit AlignModuleDevice(const ModelRef& module,
                             std::optional<c10::Device> device = std::nullopt);
  // Throws an Error where what was written cannot be kept, unless another exception is on its way.
  ~AlignModuleDevice() noexcept(false);
  AlignModuleDevice(const AlignModuleDevice&) = delete;
  AlignModuleDevice& operator=(const AlignModuleDevice&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace haul
