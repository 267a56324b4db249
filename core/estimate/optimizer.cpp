#include "core/estimate/count.h"
#include "haul/estimate.h"

namespace haul {
namespace {

using core::Count;

constexpr std::uint64_t kBlock = 256;          // elements that share a scale
constexpr std::uint64_t kSmallTensor = 4'096;  // below it, 8-bit states are not worth it

Count adam_8bit(std::uint64_t elements) {
  if (elements < kSmallTensor) return Count(8) * elements;
  const std::uint64_t blocks = elements / kBlock + (elements % kBlock != 0 ? 1 : 0);
  return Count(2) * elements + Count(2 * 4) * blocks;
}

Count adafactor(const Shape& shape, std::uint64_t elements) {
  if (shape.size() < 2 || elements == 0) return Count(4) * elements;
  const auto columns = static_cast<std::uint64_t>(shape.back());
  const auto rows = static_cast<std::uint64_t>(shape[shape.size() - 2]);
  return Count(4) * (Count(elements / columns) + elements / rows);
}

}  // namespace

Bytes optimizer_bytes(Optimizer optimizer, const Shape& shape) {
  const std::uint64_t elements = element_count(shape);
  switch (optimizer) {
    case Optimizer::kAdamW:
      return (Count(8) * elements).value();
    case Optimizer::kAdam8Bit:
      return adam_8bit(elements).value();
    case Optimizer::kAdafactor:
      return adafactor(shape, elements).value();
    case Optimizer::kSgd:
      return 0;
  }
  return 0;
}

}  // namespace haul
