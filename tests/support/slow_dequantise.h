#pragma once

// The quantised formats value by value, straight from their definition: the judge of the fast code.
// Written from the layout of each block, without SIMD and without sharing code with core/formats.

#include <cstddef>
#include <span>
#include <vector>

#include "core/formats/checkpoint.h"

namespace haul::test {

std::vector<float> slow_dequantise(core::Coding coding, std::span<const std::byte> blocks);

}  // namespace haul::test
