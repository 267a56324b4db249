#pragma once

// A module tree for people: one line a module with its size, its share of the whole, its class and
// its tensors, numbered repeats that are alike folded into one line.

#include <string>

#include "haul/description.h"

namespace haul::cli {

// Styled where stdout shows colours. No trailing newline.
std::string tree_view(const Description& description);

}  // namespace haul::cli
