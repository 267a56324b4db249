#pragma once

// Floats from one width to another, rounded once to nearest, ties to even (torch rounds F64 twice
// on its way to BF16). Pure; any thread.

#include <cstddef>
#include <span>

#include "haul/dtype.h"

namespace haul::core {

// F16, BF16, F32 and F64. Narrower floats come with scales and are left as they are.
bool is_castable(Dtype dtype);

// REQUIRES: both types castable and as many elements in `out` as in `in`. Neither need be aligned.
void cast_floats(Dtype from, std::span<const std::byte> in, Dtype to, std::span<std::byte> out);

}  // namespace haul::core
