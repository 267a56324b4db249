#pragma once

#include "haul/bytes.h"

namespace haul::core {

// What the matrix library keeps for itself on a GPU once it has run.
inline constexpr Bytes kBlasWorkspace = 32 * kMiB;

}  // namespace haul::core
