#include "core/formats/tensor_size.h"

namespace haul::core {

std::optional<Bytes> checked_size(Dtype dtype, const Shape& shape) {
  Bytes count = 1;
  for (const std::int64_t size : shape) {
    if (size < 0) return std::nullopt;
    if (__builtin_mul_overflow(count, static_cast<Bytes>(size), &count)) return std::nullopt;
  }
  if (__builtin_mul_overflow(count, static_cast<Bytes>(bits(dtype)), &count)) return std::nullopt;
  if (count % 8 != 0) return std::nullopt;
  return count / 8;
}

std::optional<Bytes> checked_span(Dtype dtype, const Shape& shape,
                                  const std::vector<std::int64_t>& strides) {
  if (shape.size() != strides.size() || bits(dtype) < 8) return std::nullopt;
  bool empty = false;
  Bytes last = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 0 || strides[i] < 0) return std::nullopt;
    if (shape[i] == 0) {
      empty = true;
      continue;
    }
    Bytes step = 0;
    if (__builtin_mul_overflow(static_cast<Bytes>(shape[i] - 1), static_cast<Bytes>(strides[i]),
                               &step) ||
        __builtin_add_overflow(last, step, &last)) {
      return std::nullopt;
    }
  }
  if (empty) return 0;
  Bytes span = 0;
  const auto element = static_cast<Bytes>(bits(dtype) / 8);
  if (last == ~Bytes{0} || __builtin_mul_overflow(last + 1, element, &span)) return std::nullopt;
  return span;
}

}  // namespace haul::core
