#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "kernels/row_products.h"

namespace haul::kernels {

// Of torch's numbers.
template <typename T>
inline constexpr WeightType kWeightType = WeightType::kF32;
template <>
inline constexpr WeightType kWeightType<c10::BFloat16> = WeightType::kBF16;
template <>
inline constexpr WeightType kWeightType<c10::Half> = WeightType::kF16;

}  // namespace haul::kernels
