#pragma once

// The numbers that the kernels know. Sums are float32, whichever they are.

#include <cstdint>

namespace haul::kernels::cuda {

enum class Numbers : std::uint8_t { kBF16, kF16, kF32 };

}  // namespace haul::kernels::cuda
