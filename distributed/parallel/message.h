#pragma once

// What one process of a pipeline tells another: a value with the shapes that it has this time, or
// that there is none because something failed. One thread.

#include <functional>
#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "distributed/group/group.h"
#include "haul/error.h"
#include "haul/torch/pipeline_value.h"

namespace haul::distributed {

struct Message {
  PipelineValue value;
  std::optional<Error> error;  // instead of the value
  bool last = false;           // of its pass
};

// Does not wait for the other; Group::finish_sends() does.
void send(Group& group, int to, const Message& message);

// The messages of one other process, in order. Their tensors come to lie on `device`.
class Receiver {
 public:
  Receiver(Group& group, int from, c10::Device device)
      : group_(group), from_(from), device_(device) {}

  // The next one may come while this process does something else. REQUIRES: it will be received.
  void expect();
  Message receive();

 private:
  Group& group_;
  int from_;
  c10::Device device_;
  at::Tensor first_;
  std::function<void()> come_;  // empty: none is expected
};

}  // namespace haul::distributed
