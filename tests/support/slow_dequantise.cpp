#include "tests/support/slow_dequantise.h"

#include <cmath>
#include <cstdint>
#include <limits>

namespace haul::test {
namespace {

using core::Coding;

struct Block {
  const std::byte* data;

  int u8(std::size_t at) const { return static_cast<int>(data[at]); }
  int i8(std::size_t at) const { return static_cast<std::int8_t>(data[at]); }
  // `count` bits of byte `at`, from bit `from`.
  int bits(std::size_t at, std::size_t from, int count) const {
    return (u8(at) >> from) & ((1 << count) - 1);
  }
  float half(std::size_t at) const {
    const int bits16 = u8(at) | u8(at + 1) << 8;
    const int exponent = (bits16 >> 10) & 31;
    const int mantissa = bits16 & 1023;
    double value = 0;
    if (exponent == 31) {
      value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                            : std::numeric_limits<double>::quiet_NaN();
    } else if (exponent == 0) {
      value = std::ldexp(mantissa, -24);
    } else {
      value = std::ldexp(1024 + mantissa, exponent - 25);
    }
    return static_cast<float>((bits16 & 0x8000) != 0 ? -value : value);
  }
};

// One rounding each: volatile keeps the compiler from fusing them.
float times(float a, float b) {
  volatile float product = a * b;
  return product;
}
float times(float a, int b) {
  return times(a, static_cast<float>(b));
}

int nibble(const Block& block, std::size_t at, std::size_t i) {
  return block.bits(at + i % 16, i / 16 * 4, 4);
}

// The six-bit scale (or, with `kind` 1, minimum) of group g in Q4_K and Q5_K.
int six_bits(const Block& block, std::size_t g, std::size_t kind) {
  constexpr std::size_t kAt = 4;
  if (g < 4) return block.bits(kAt + 4 * kind + g, 0, 6);
  return block.bits(kAt + 8 + g - 4, 4 * kind, 4) | block.bits(kAt + 4 * kind + g - 4, 6, 2) << 4;
}

float value(Coding coding, const Block& block, std::size_t i) {
  switch (coding) {
    case Coding::kQ4_0:
      return times(block.half(0), nibble(block, 2, i) - 8);
    case Coding::kQ4_1:
      return times(block.half(0), nibble(block, 4, i)) + block.half(2);
    case Coding::kQ5_0:
      return times(block.half(0),
                   (nibble(block, 6, i) | block.bits(2 + i / 8, i % 8, 1) << 4) - 16);
    case Coding::kQ5_1:
      return times(block.half(0), nibble(block, 8, i) | block.bits(4 + i / 8, i % 8, 1) << 4) +
             block.half(2);
    case Coding::kQ8_0:
      return times(block.half(0), block.i8(2 + i));
    case Coding::kQ2_K: {
      const int code = block.bits(16 + i / 128 * 32 + i % 32, i % 128 / 32 * 2, 2);
      const float scale = times(block.half(80), block.bits(i / 16, 0, 4));
      return times(scale, code) - times(block.half(82), block.bits(i / 16, 4, 4));
    }
    case Coding::kQ3_K: {
      const std::size_t g = i / 16;
      const int code = block.bits(32 + i / 128 * 32 + i % 32, i % 128 / 32 * 2, 2);
      const int high = block.bits(i % 32, i / 32, 1);
      const int scale = block.bits(96 + g % 8, g / 8 * 4, 4) | block.bits(104 + g % 4, g / 4 * 2, 2)
                                                                   << 4;
      return times(times(block.half(108), scale - 32), high == 1 ? code : code - 4);
    }
    case Coding::kQ4_K:
    case Coding::kQ5_K: {
      const std::size_t g = i / 32;
      const bool five = coding == Coding::kQ5_K;
      int code = block.bits((five ? 48 : 16) + g / 2 * 32 + i % 32, g % 2 * 4, 4);
      if (five) code |= block.bits(16 + i % 32, g, 1) << 4;
      return times(times(block.half(0), six_bits(block, g, 0)), code) -
             times(block.half(2), six_bits(block, g, 1));
    }
    case Coding::kQ6_K: {
      const std::size_t part = i / 128;
      const std::size_t within = i % 128;
      const int low = block.bits(part * 64 + within % 64, within / 64 * 4, 4);
      const int high = block.bits(128 + part * 32 + within % 32, within / 32 * 2, 2);
      return times(times(block.half(208), block.i8(192 + i / 16)), (low | high << 4) - 32);
    }
    case Coding::kPlain:
      break;
  }
  return 0;
}

}  // namespace

std::vector<float> slow_dequantise(Coding coding, std::span<const std::byte> blocks) {
  struct Size {
    std::size_t elements, bytes;
  };
  constexpr Size kSizes[] = {{1, 1},    {32, 18},   {32, 20},   {32, 22},   {32, 24},  {32, 34},
                             {256, 84}, {256, 110}, {256, 144}, {256, 176}, {256, 210}};
  const auto [elements, bytes] = kSizes[static_cast<std::size_t>(coding)];
  std::vector<float> values;
  for (std::size_t at = 0; at + bytes <= blocks.size(); at += bytes) {
    for (std::size_t i = 0; i < elements; ++i) {
      values.push_back(value(coding, Block{blocks.data() + at}, i));
    }
  }
  return values;
}

}  // namespace haul::test
