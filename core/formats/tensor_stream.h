#pragma once

// A tensor of a checkpoint as plain elements in C order: views made contiguous, quantised blocks
// expanded, floats cast on the way. Takes a few MB whatever the tensor's size, and lets go of the
// mapped pages behind itself. Any thread.

#include <cstddef>
#include <functional>
#include <span>

#include "core/formats/checkpoint.h"
#include "haul/dtype.h"

namespace haul::core {

// Calls `sink` with piece after piece. REQUIRES: `as` is the tensor's dtype, or both are castable.
void stream_tensor(const Checkpoint& checkpoint, const StoredTensor& tensor, Dtype as,
                   const std::function<void(std::span<const std::byte>)>& sink);

}  // namespace haul::core
