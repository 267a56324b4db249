#pragma once

// What one process of a pipeline tells another: a value with the shapes that it has this time, or
// that there is none because something failed. One thread.

#include <optional>

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
// Tensors come to lie on `device`.
Message receive(Group& group, int from, c10::Device device);

}  // namespace haul::distributed
