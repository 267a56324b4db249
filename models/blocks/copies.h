#pragma once

// A tensor that all layers of a pass use, on the devices that they are on: brought to each once. To
// bring it for each layer anew would keep whoever gives a GPU its work waiting. One pass's thread.

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

namespace haul::models {

class Copies {
 public:
  // Itself where it is on that device, or undefined. REQUIRES: always the same tensor.
  at::Tensor of(const at::Tensor& tensor, at::Device device) const {
    if (!tensor.defined() || tensor.device() == device) return tensor;
    for (const at::Tensor& copy : *copies_) {
      if (copy.device() == device) return copy;
    }
    return copies_->emplace_back(tensor.to(device));
  }

 private:
  std::shared_ptr<std::vector<at::Tensor>> copies_ = std::make_shared<std::vector<at::Tensor>>();
};

}  // namespace haul::models
