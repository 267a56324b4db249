#include "core/formats/cast.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/formats/cast.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace haul::core {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Floats on their way are words of 32 bits; comparisons are of numbers without a sign bit.
using Words = hn::ScalableTag<std::int32_t>;
using Word = hn::Vec<Words>;

Word word(std::int32_t value) {
  return hn::Set(Words(), value);
}

Word load_narrow(const std::byte* from) {
  const hn::Rebind<std::uint16_t, Words> narrow;
  return hn::PromoteTo(Words(), hn::LoadU(narrow, reinterpret_cast<const std::uint16_t*>(from)));
}
void store_narrow(Word words, std::byte* to) {
  const hn::Rebind<std::uint16_t, Words> narrow;
  hn::StoreU(hn::DemoteTo(narrow, words), narrow, reinterpret_cast<std::uint16_t*>(to));
}

// The codings of the types in memory, each with the way to and from a float's word.

struct Half {
  static constexpr std::size_t kSize = 2;

  static Word load(const std::byte* from) {
    const hn::RebindToFloat<Words> floats;
    const Word half = load_narrow(from);
    const Word magnitude = hn::And(half, word(0x7fff));
    const Word sign = hn::ShiftLeft<16>(hn::Sub(half, magnitude));
    const Word shifted = hn::ShiftLeft<13>(magnitude);
    const Word normal = hn::Add(shifted, word((127 - 15) << 23));
    const Word special = hn::Add(normal, word((127 - 15) << 23));
    // Zero or subnormal: an exact small integer times 2^-24.
    const Word small =
        hn::BitCast(Words(), hn::Mul(hn::ConvertTo(floats, magnitude), hn::Set(floats, 0x1p-24F)));
    Word wide = hn::IfThenElse(hn::Lt(magnitude, word(0x400)), small, normal);
    wide = hn::IfThenElse(hn::Gt(magnitude, word(0x7bff)), special, wide);
    return hn::Or(sign, wide);
  }

  static void store(Word value, std::byte* to) {
    constexpr std::int32_t kInfinity = 0x7f800000;
    constexpr std::int32_t kOverflows = 0x477ff000;  // 65520, half way above the largest half
    constexpr std::int32_t kNormal = 0x38800000;     // 2^-14
    constexpr std::int32_t kRebias = (127 - 15) << 23;
    const hn::RebindToFloat<Words> floats;
    const Word magnitude = hn::And(value, word(0x7fffffff));
    const Word sign = hn::And(hn::ShiftRight<16>(value), word(0x8000));
    const Word rebiased = hn::Sub(magnitude, word(kRebias));
    const Word odd = hn::And(hn::ShiftRight<13>(rebiased), word(1));
    const Word normal = hn::ShiftRight<13>(hn::Add(hn::Add(rebiased, word(0xfff)), odd));
    // The last bit of a float from 0.5 on is 2^-24, that of subnormal halves.
    const auto half = hn::Set(floats, 0.5F);
    const Word small = hn::Sub(hn::BitCast(Words(), hn::Add(hn::BitCast(floats, magnitude), half)),
                               hn::BitCast(Words(), half));
    Word stored = hn::IfThenElse(hn::Lt(magnitude, word(kNormal)), small, normal);
    stored = hn::IfThenElse(hn::Lt(magnitude, word(kOverflows)), stored, word(0x7c00));
    stored = hn::IfThenElse(hn::Gt(magnitude, word(kInfinity)), word(0x7e00), stored);
    store_narrow(hn::Or(sign, stored), to);
  }
};

struct Brain {
  static constexpr std::size_t kSize = 2;

  static Word load(const std::byte* from) { return hn::ShiftLeft<16>(load_narrow(from)); }

  static void store(Word value, std::byte* to) {
    const Word odd = hn::And(hn::ShiftRight<16>(value), word(1));
    const Word up = hn::Add(hn::Add(value, word(0x7fff)), odd);
    const Word rounded = hn::And(hn::ShiftRight<16>(up), word(0xffff));
    const auto is_nan = hn::Gt(hn::And(value, word(0x7fffffff)), word(0x7f800000));
    store_narrow(hn::IfThenElse(is_nan, word(0x7fc0), rounded), to);
  }
};

struct Single {
  static constexpr std::size_t kSize = 4;
  static Word load(const std::byte* from) {
    return hn::LoadU(Words(), reinterpret_cast<const std::int32_t*>(from));
  }
  static void store(Word value, std::byte* to) {
    hn::StoreU(value, Words(), reinterpret_cast<std::int32_t*>(to));
  }
};

template <typename From, typename To>
void cast_all(const std::byte* in, std::size_t count, std::byte* out) {
  const std::size_t lanes = hn::Lanes(Words());
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    To::store(From::load(in + i * From::kSize), out + i * To::kSize);
  }
  if (i == count) return;
  std::array<std::byte, hn::MaxLanes(Words()) * From::kSize> last_in{};
  std::array<std::byte, hn::MaxLanes(Words()) * To::kSize> last_out{};
  std::memcpy(last_in.data(), in + i * From::kSize, (count - i) * From::kSize);
  To::store(From::load(last_in.data()), last_out.data());
  std::memcpy(out + i * To::kSize, last_out.data(), (count - i) * To::kSize);
}

template <typename From>
void cast_from(const std::byte* in, std::size_t count, Dtype to, std::byte* out) {
  if (to == Dtype::kF16) return cast_all<From, Half>(in, count, out);
  if (to == Dtype::kBF16) return cast_all<From, Brain>(in, count, out);
  cast_all<From, Single>(in, count, out);
}

// Of up to 32 bits.
void cast_short(Dtype from, const std::byte* in, std::size_t count, Dtype to, std::byte* out) {
  if (from == Dtype::kF16) return cast_from<Half>(in, count, to, out);
  if (from == Dtype::kBF16) return cast_from<Brain>(in, count, to, out);
  cast_from<Single>(in, count, to, out);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace haul::core
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace haul::core {

HWY_EXPORT(cast_short);

namespace {

// The float beside an inexact value whose last bit is set, so that rounding it further gives what
// rounding the value itself would.
float rounded_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  const auto word = std::bit_cast<std::uint32_t>(nearest);
  const auto wide = static_cast<double>(nearest);
  if (wide == value || value != value || word % 2 == 1) return nearest;
  return std::bit_cast<float>(std::abs(wide) > std::abs(value) ? word - 1 : word + 1);
}

// Doubles go by way of floats, so many at once.
constexpr std::size_t kFloats = 1024;

template <typename From, typename To, typename Cast>
void one_by_one(const std::byte* in, std::size_t count, std::byte* out, const Cast& cast) {
  for (std::size_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, in + i * sizeof(value), sizeof(value));
    const To result = cast(value);
    std::memcpy(out + i * sizeof(result), &result, sizeof(result));
  }
}

void cast_doubles(const std::byte* in, std::size_t count, Dtype to, std::byte* out) {
  if (to == Dtype::kF32) {
    return one_by_one<double, float>(in, count, out,
                                     [](double value) { return static_cast<float>(value); });
  }
  std::array<float, kFloats> floats;
  auto* const bytes = reinterpret_cast<std::byte*>(floats.data());
  for (std::size_t done = 0; done < count; done += kFloats) {
    const std::size_t some = std::min(kFloats, count - done);
    one_by_one<double, float>(in + done * sizeof(double), some, bytes, rounded_to_odd);
    HWY_DYNAMIC_DISPATCH(cast_short)
    (Dtype::kF32, bytes, some, to, out + done * static_cast<std::size_t>(bits(to)) / 8);
  }
}

void cast_to_doubles(Dtype from, const std::byte* in, std::size_t count, std::byte* out) {
  const auto widen = [](float value) { return static_cast<double>(value); };
  if (from == Dtype::kF32) return one_by_one<float, double>(in, count, out, widen);
  std::array<float, kFloats> floats;
  auto* const bytes = reinterpret_cast<std::byte*>(floats.data());
  for (std::size_t done = 0; done < count; done += kFloats) {
    const std::size_t some = std::min(kFloats, count - done);
    HWY_DYNAMIC_DISPATCH(cast_short)
    (from, in + done * static_cast<std::size_t>(bits(from)) / 8, some, Dtype::kF32, bytes);
    one_by_one<float, double>(bytes, some, out + done * sizeof(double), widen);
  }
}

}  // namespace

bool is_castable(Dtype dtype) {
  return dtype == Dtype::kF16 || dtype == Dtype::kBF16 || dtype == Dtype::kF32 ||
         dtype == Dtype::kF64;
}

void cast_floats(Dtype from, std::span<const std::byte> in, Dtype to, std::span<std::byte> out) {
  const std::size_t count = in.size() / (static_cast<std::size_t>(bits(from)) / 8);
  if (from == to) {
    std::copy_n(in.data(), in.size(), out.data());
  } else if (from == Dtype::kF64) {
    cast_doubles(in.data(), count, to, out.data());
  } else if (to == Dtype::kF64) {
    cast_to_doubles(from, in.data(), count, out.data());
  } else {
    HWY_DYNAMIC_DISPATCH(cast_short)(from, in.data(), count, to, out.data());
  }
}

}  // namespace haul::core
#endif  // HWY_ONCE
