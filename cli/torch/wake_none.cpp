#include "cli/torch/wake.h"

namespace haul::cli {

void wait_until_awake() {}

}  // namespace haul::cli
