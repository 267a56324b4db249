#include "cli/torch/early_memory.h"
#include "cli/torch/wake.h"

namespace haul::cli {

void wait_until_awake() {}

EarlyMemory early_memory() {
  return {};
}

}  // namespace haul::cli
