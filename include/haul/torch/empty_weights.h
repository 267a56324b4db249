#pragma once

// Scopes for building a model of stock or own `torch::nn` modules without its memory. They act on
// the calling thread alone and nest. Only tensors made without naming a device are concerned, so
// values written out by hand (`torch::tensor({1, 2})`) stay what they are.

#include <memory>

#include <c10/core/Device.h>

namespace haul {

struct EmptyWeightsOptions {
  // Buffers stay empty too. Otherwise they are computed when the scope ends, and only they: masks
  // and rotary tables hold their values, while no parameter is ever allocated or initialised.
  bool include_buffers = false;
};

// While it lives, modules are built on the meta device: shapes and dtypes, no memory, no random
// numbers. What then holds a tensor that needs no gradient, and shares no memory with one that
// does, counts as a buffer; a parameter registered as frozen does, too.
//
//   haul::EmptyWeights scope;
//   Gpt model(config);
class EmptyWeights {
 public:
  explicit EmptyWeights(const EmptyWeightsOptions& options = {});
  // Computes the buffers; throws c10::Error where that fails.
  ~EmptyWeights() noexcept(false);
  EmptyWeights(const EmptyWeights&) = delete;
  EmptyWeights& operator=(const EmptyWeights&) = delete;

  class Recorder;

 private:
  std::unique_ptr<Recorder> recorder_;
};

// While it lives, tensors are made on this device instead of the CPU:
//
//   auto scope = haul::init_on_device(torch::kCUDA);
class InitOnDevice {
 public:
  explicit InitOnDevice(c10::Device device);
  ~InitOnDevice();
  InitOnDevice(const InitOnDevice&) = delete;
  InitOnDevice& operator=(const InitOnDevice&) = delete;

 private:
  std::unique_ptr<EmptyWeights::Recorder> recorder_;
};

[[nodiscard]] inline InitOnDevice init_on_device(c10::Device device) {
  return InitOnDevice(device);
}

}  // namespace haul
