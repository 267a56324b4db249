// Any blocks of any coding: no read beyond them, and the values of the slow reference.

#include "core/formats/dequantise.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/formats/ggml_type.h"
#include "tests/support/slow_dequantise.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr int kCodings = 10;
  if (size == 0) return 0;
  const auto coding = static_cast<haul::core::Coding>(1 + data[0] % kCodings);
  const auto& type = haul::core::ggml_type(coding);
  const std::size_t count = (size - 1) / type.block_bytes;
  // A copy of just the right size, so that the sanitizer sees its edges.
  const std::vector<std::byte> blocks(
      reinterpret_cast<const std::byte*>(data) + 1,
      reinterpret_cast<const std::byte*>(data) + 1 + count * type.block_bytes);
  std::vector<float> values(count * type.block_elements);
  haul::core::dequantise(coding, blocks, values);
  const std::vector<float> expected = haul::test::slow_dequantise(coding, blocks);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool same =
        std::bit_cast<std::uint32_t>(values[i]) == std::bit_cast<std::uint32_t>(expected[i]);
    if (!same && !(std::isnan(values[i]) && std::isnan(expected[i]))) __builtin_trap();
  }
  return 0;
}
