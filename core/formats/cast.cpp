#include "core/formats/cast.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace haul::core {
namespace {

// The codings of the types in memory, each with the way to and from float or double.

struct Half {
  using Stored = std::uint16_t;
  using Value = float;

  static float load(std::uint16_t half) {
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
    const std::uint32_t exponent = half >> 10 & 0x1f;
    const std::uint32_t mantissa = half & 0x3ff;
    if (exponent == 0) {
      const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
      return sign != 0 ? -magnitude : magnitude;
    }
    const std::uint32_t wide = exponent == 0x1f ? 0xff : exponent + (127 - 15);
    return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
  }

  static std::uint16_t store(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = word >> 16 & 0x8000;
    return static_cast<std::uint16_t>(sign | magnitude(word & 0x7fffffff));
  }

 private:
  static std::uint32_t magnitude(std::uint32_t word) {
    constexpr std::uint32_t kInfinity = 0x7f800000;
    constexpr std::uint32_t kOverflows = 0x477ff000;  // 65520, half way above the largest half
    constexpr std::uint32_t kNormal = 0x38800000;     // 2^-14
    constexpr std::uint32_t kRebias = (127 - 15) << 23;
    if (word > kInfinity) return 0x7e00;
    if (word >= kOverflows) return 0x7c00;
    if (word >= kNormal) {
      const std::uint32_t rebiased = word - kRebias;
      return (rebiased + 0xfff + (rebiased >> 13 & 1)) >> 13;
    }
    const std::uint32_t exponent = word >> 23;
    if (exponent < 102) return 0;  // below 2^-25
    const std::uint32_t mantissa = (word & 0x7fffff) | 0x800000;
    const std::uint32_t shift = 126 - exponent;  // 14 to 24, to units of 2^-24
    const std::uint32_t half_way = (1U << (shift - 1)) - 1;
    return (mantissa + half_way + (mantissa >> shift & 1)) >> shift;
  }
};

struct Brain {
  using Stored = std::uint16_t;
  using Value = float;

  static float load(std::uint16_t stored) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(stored) << 16);
  }

  static std::uint16_t store(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (word + 0x7fff + (word >> 16 & 1)) >> 16;
    return static_cast<std::uint16_t>(value != value ? 0x7fc0 : rounded);
  }
};

struct Single {
  using Stored = float;
  using Value = float;
  static float load(float stored) { return stored; }
  static float store(float value) { return value; }
};

struct Double {
  using Stored = double;
  using Value = double;
  static double load(double stored) { return stored; }
  static double store(double value) { return value; }
};

// The float beside an inexact value whose last bit is set, so that rounding it further gives what
// rounding the value itself would.
float rounded_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  const auto word = std::bit_cast<std::uint32_t>(nearest);
  const auto wide = static_cast<double>(nearest);
  if (wide == value || value != value || word % 2 == 1) return nearest;
  return std::bit_cast<float>(std::abs(wide) > std::abs(value) ? word - 1 : word + 1);
}

template <typename From, typename To>
auto narrowed(typename From::Value value) {
  constexpr bool kTwoSteps = sizeof(typename From::Stored) == 8 && sizeof(typename To::Stored) == 2;
  if constexpr (kTwoSteps) {
    return rounded_to_odd(value);
  } else {
    return static_cast<typename To::Value>(value);
  }
}

template <typename From, typename To>
void cast_all(std::span<const std::byte> in, std::span<std::byte> out) {
  const std::size_t count = in.size() / sizeof(typename From::Stored);
  for (std::size_t i = 0; i < count; ++i) {
    typename From::Stored source;
    std::memcpy(&source, in.data() + i * sizeof(source), sizeof(source));
    const auto target = To::store(narrowed<From, To>(From::load(source)));
    std::memcpy(out.data() + i * sizeof(target), &target, sizeof(target));
  }
}

template <typename From>
void cast_from(std::span<const std::byte> in, Dtype to, std::span<std::byte> out) {
  if (to == Dtype::kF16) return cast_all<From, Half>(in, out);
  if (to == Dtype::kBF16) return cast_all<From, Brain>(in, out);
  if (to == Dtype::kF32) return cast_all<From, Single>(in, out);
  cast_all<From, Double>(in, out);
}

}  // namespace

bool is_castable(Dtype dtype) {
  return dtype == Dtype::kF16 || dtype == Dtype::kBF16 || dtype == Dtype::kF32 ||
         dtype == Dtype::kF64;
}

void cast_floats(Dtype from, std::span<const std::byte> in, Dtype to, std::span<std::byte> out) {
  if (from == Dtype::kF16) return cast_from<Half>(in, to, out);
  if (from == Dtype::kBF16) return cast_from<Brain>(in, to, out);
  if (from == Dtype::kF32) return cast_from<Single>(in, to, out);
  cast_from<Double>(in, to, out);
}

}  // namespace haul::core
