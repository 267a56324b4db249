#pragma once

// Sizes of tensors whose shapes come from a file and may lie. Pure.

#include <cstdint>
#include <optional>
#include <vector>

#include "haul/bytes.h"
#include "haul/description.h"
#include "haul/dtype.h"

namespace haul::core {

// Bytes of a contiguous tensor; nothing when a dimension is negative, when the product does not
// fit 64 bits, or when elements smaller than a byte do not fill whole bytes.
std::optional<Bytes> checked_size(Dtype dtype, const Shape& shape);

// Bytes from the first element of a strided view to the end of its last; nothing when a dimension
// or stride is negative, when their number differs, when the sum does not fit 64 bits, or for
// elements smaller than a byte. A view without elements spans none.
std::optional<Bytes> checked_span(Dtype dtype, const Shape& shape,
                                  const std::vector<std::int64_t>& strides);

}  // namespace haul::core
