#pragma once

// Copies of the memory behind a model's tensors. Tensors that share memory share the copy. One
// thread.

#include <map>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace haul::runtime {

class MemoryCopies {
 public:
  // The same tensor, sizes and strides and all, in a copy of its memory on the device. Offloaded
  // weights are brought for it; what is returned is an ordinary tensor.
  at::Tensor copy_of(const at::Tensor& tensor, c10::Device device);

  struct Copy {  // all bytes of both
    at::Tensor from;
    at::Tensor to;
  };
  const std::map<const void*, Copy>& all() const { return copies_; }

 private:
  // By storage. Holding it means that no address is used again meanwhile.
  std::map<const void*, Copy> copies_;
};

// Weights of dispatched models among the tensors become ordinary tensors on the device. Where one
// of them cannot be had, an Error names it and nothing has changed.
void make_ordinary(const std::vector<at::Tensor>& tensors, c10::Device device);

// The tensor becomes the other one; who holds it sees that.
void become(const at::Tensor& tensor, const at::Tensor& other);

}  // namespace haul::runtime
