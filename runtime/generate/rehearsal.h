#pragma once

// A GPU's driver loads a kernel when it is first used, and libraries begin then, which is a quarter
// of a second for a model's first tokens. A small model of the same family that runs while the
// weights are read has all of that behind it when the words are to come.

#include <ATen/core/Tensor.h>

#include "core/base/json.h"
#include "haul/bytes.h"
#include "haul/description.h"
#include "haul/dtype.h"

namespace haul::runtime {

struct Rehearsal {
  at::Device device;
  Dtype dtype;
  bool replayed = false;  // the token as a recorded pass, on a GPU
  // Its weights take no more than this, which is free until the model itself runs; else there is
  // none.
  Bytes room = 0;
};

// Runs a prompt and a token through a decoder of this config whose layers are few and narrow, with
// heads as they are in `dimensions`. Throws what making or running a model throws. Whether it ran.
bool rehearse(const core::Json& config, const Dimensions& dimensions, const Rehearsal& rehearsal);

}  // namespace haul::runtime
