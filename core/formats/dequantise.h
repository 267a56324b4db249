#pragma once

// GGUF's quantised blocks expanded to float32, with SIMD chosen at run time. Bit-equal to the
// arithmetic that defines the formats: every product and sum is rounded by itself, so this code
// must be compiled without contraction to fused multiply-adds. Pure; any thread may call it, and
// a tensor may be cut at any block boundary to spread it over several.

#include <cstddef>
#include <span>

#include "core/formats/checkpoint.h"

namespace haul::core {

// REQUIRES: whole blocks of `coding` (not kPlain) and as many values as they hold; throws
// Error(kInternal) otherwise.
void dequantise(Coding coding, std::span<const std::byte> blocks, std::span<float> values);

}  // namespace haul::core
