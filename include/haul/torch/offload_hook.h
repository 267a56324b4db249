#pragma once

// Whole models that take turns on one device, as the parts of a pipeline do (a text encoder, a
// U-Net that is called many times, a decoder). Each lies in RAM, or on disk, until one of its
// weights is used. Then it comes as a whole and stays, over any number of calls, until the next
// model of the chain is used or its hook says so:
//
//   auto [encode, first] = haul::cpu_offload_with_hook(encoder);
//   auto [denoise, second] = haul::cpu_offload_with_hook(unet, std::nullopt, first);
//   auto text = encode(ids);                                        // the encoder is on the GPU
//   for (int i = 0; i < 50; ++i) latents = denoise(latents, text);  // now the U-Net alone
//   second.offload();
//
// `device_map` tells where such a model is at present. An op that writes to a weight writes to the
// place in RAM that it goes back to as well, so nothing is copied when it goes.

#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include <c10/core/Device.h>

#include "haul/torch/dispatch.h"

namespace haul {

namespace runtime {
struct SwappedModel;
}

// One model's place in a chain. Copies are the same hook. It holds the model's weights, but not
// those of the previous one.
class OffloadHook {
 public:
  OffloadHook() = default;  // of no model: the start of a chain
  // As cpu_offload_with_hook or, where a folder is given, disk_offload_with_hook.
  OffloadHook(const ModelRef& model, std::optional<c10::Device> execution_device,
              const OffloadHook& previous, const std::filesystem::path& folder = {});

  // The model leaves the execution device, and its memory there is free. Ops that use it at this
  // moment end first. Any thread; a model that is away already stays so.
  void offload() const;
  // Makes an ordinary model of it, with its weights where it is now, or in RAM if that is the disk.
  // The model is then called directly. One thread, while nobody runs the model.
  void remove();

  // What a call of the model has to move: inputs to the device; outputs stay there.
  InputOutput input_output() const;

 private:
  std::shared_ptr<runtime::SwappedModel> model_;
};

// Takes a model that has its values. The device is by default the first GPU, else the CPU. For the
// CPU nothing moves: the model is and stays an ordinary one, and its hook has nothing to do. The
// previous model leaves before a weight of this one is used, in whatever way: the handle that is
// returned brings inputs to the device, and a direct call of forward does the rest. Models of a
// chain are meant to run one after the other; run at once they compute right and slowly.
template <typename Model>
std::pair<Dispatched<Model>, OffloadHook> cpu_offload_with_hook(
    Model model, std::optional<c10::Device> execution_device = std::nullopt,
    const OffloadHook& previous = {}) {
  const OffloadHook hook(model, execution_device, previous);
  return {Dispatched<Model>(model, hook.input_output()), hook};
}

// The same with the weights in a file of the folder. So models that RAM holds one by one, but not
// together, take turns on a CPU as well.
template <typename Model>
std::pair<Dispatched<Model>, OffloadHook> disk_offload_with_hook(
    Model model, const std::filesystem::path& folder,
    std::optional<c10::Device> execution_device = std::nullopt, const OffloadHook& previous = {}) {
  const OffloadHook hook(model, execution_device, previous, folder);
  return {Dispatched<Model>(model, hook.input_output()), hook};
}

}  // namespace haul
