#include "runtime/tiers/gpu.h"

namespace haul::runtime {

bool built_for_gpus() {
  return false;
}

std::vector<Gpu> gpus() {
  return {};
}

}  // namespace haul::runtime
