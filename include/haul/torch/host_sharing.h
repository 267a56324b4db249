#pragma once

// Weights in RAM that are there once for all processes of a machine that load the same model.
//
//   haul::ModelOptions options;
//   options.sharing = haul::share_host_weights(haul::PartialState());
//   haul::LoadedModel model = haul::load_model(name, options);
//
// One of them reads and converts, the others map the same memory. Afterwards it is everybody's own
// for writing: what one changes, the others do not see.

#include <cstdint>
#include <memory>

#include "haul/bytes.h"

namespace haul {

class PartialState;

class HostSharing {
 public:
  virtual ~HostSharing() = default;

  struct Memory {
    int descriptor = -1;  // to map, and not to close; below 0: everyone has memory of its own
    bool fills = true;    // whether this process is the one to fill it
  };
  // For each load of a model all processes call these once, in this order. `layout` is equal only
  // for the same weights at the same places; who differs from the others has memory of its own.
  virtual Memory open(Bytes size, std::uint64_t layout) = 0;
  // Returns when everyone's memory is filled.
  virtual void filled() = 0;
  // The descriptor is not needed any more.
  virtual void close() = 0;
};

// Among the processes of each machine; nothing for a process that is alone.
std::shared_ptr<HostSharing> share_host_weights(const PartialState& state);

}  // namespace haul
