#pragma once

// The GPUs that this process may use. In a build without the CUDA part, and on a machine without a
// GPU, there are none. May be called from any thread.

#include <string>
#include <vector>

#include "haul/bytes.h"

namespace haul::runtime {

struct Gpu {
  int index = 0;
  std::string name;
  Bytes total = 0;
  Bytes free = 0;  // as the driver reports it now
};

// Whether this build can use a GPU at all.
bool built_for_gpus();

std::vector<Gpu> gpus();

}  // namespace haul::runtime
