#pragma once

#include <string_view>

#include "haul/description.h"

namespace haul::core {

// Refuses, as Error(kCorrupt) that names `source`, a description of more than 2^56 elements in all
// or with a negative size, so that sums over it in bytes cannot overflow.
void check_sizes(const Description& description, std::string_view source);

}  // namespace haul::core
