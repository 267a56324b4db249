#include "core/formats/dequantise.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include <fmt/format.h>

#include "core/formats/ggml_type.h"
#include "haul/error.h"

// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/formats/dequantise.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace haul::core {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// A block's codes are unpacked to signed bytes first and scaled to floats after.
using Codes = std::int8_t;

float load_half(const std::uint8_t* from) {
  std::uint16_t half;
  std::memcpy(&half, from, sizeof(half));
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fu;
  const std::uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: an exact small integer times 2^-24
    return std::bit_cast<float>(
        sign | std::bit_cast<std::uint32_t>(static_cast<float>(mantissa) * 0x1p-24f));
  }
  const std::uint32_t wide = exponent == 0x1f ? 0xffu : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

// `kCount` codes times d.
template <std::size_t kCount>
HWY_INLINE void scale(const Codes* HWY_RESTRICT codes, float d, float* HWY_RESTRICT out) {
  const hn::CappedTag<float, 16> df;
  const hn::Rebind<std::int32_t, decltype(df)> d32;
  const hn::Rebind<Codes, decltype(df)> d8;
  const auto factor = hn::Set(df, d);
  for (std::size_t i = 0; i < kCount; i += hn::Lanes(df)) {
    const auto code = hn::ConvertTo(df, hn::PromoteTo(d32, hn::LoadU(d8, codes + i)));
    hn::StoreU(hn::Mul(factor, code), df, out + i);
  }
}

enum class Offset { kPlus, kMinus };

// `kCount` codes times d, plus or minus m.
template <Offset kOffset, std::size_t kCount>
HWY_INLINE void scale(const Codes* HWY_RESTRICT codes, float d, float m, float* HWY_RESTRICT out) {
  const hn::CappedTag<float, 16> df;
  const hn::Rebind<std::int32_t, decltype(df)> d32;
  const hn::Rebind<Codes, decltype(df)> d8;
  const auto factor = hn::Set(df, d);
  const auto offset = hn::Set(df, m);
  for (std::size_t i = 0; i < kCount; i += hn::Lanes(df)) {
    const auto code = hn::ConvertTo(df, hn::PromoteTo(d32, hn::LoadU(d8, codes + i)));
    const auto product = hn::Mul(factor, code);
    if constexpr (kOffset == Offset::kPlus) {
      hn::StoreU(hn::Add(product, offset), df, out + i);
    } else {
      hn::StoreU(hn::Sub(product, offset), df, out + i);
    }
  }
}

// The bits of a code that lie in one run of bytes: `mask` after a shift right.
struct Field {
  const std::uint8_t* bytes;
  int shift;
  std::uint8_t mask;
};

// Codes from a low field alone, less a bias.
template <std::size_t kCount>
HWY_INLINE void unpack(Field low, Codes bias, Codes* HWY_RESTRICT codes) {
  const hn::CappedTag<std::uint8_t, kCount> d;
  const hn::RebindToSigned<decltype(d)> ds;
  for (std::size_t i = 0; i < kCount; i += hn::Lanes(d)) {
    const auto bits =
        hn::And(hn::ShiftRightSame(hn::LoadU(d, low.bytes + i), low.shift), hn::Set(d, low.mask));
    hn::StoreU(hn::Sub(hn::BitCast(ds, bits), hn::Set(ds, bias)), ds, codes + i);
  }
}

// Codes from a low field and a high one that stands `kHigh` bits further up, less a bias.
template <int kHigh, std::size_t kCount>
HWY_INLINE void unpack(Field low, Field high, Codes bias, Codes* HWY_RESTRICT codes) {
  const hn::CappedTag<std::uint8_t, kCount> d;
  const hn::RebindToSigned<decltype(d)> ds;
  for (std::size_t i = 0; i < kCount; i += hn::Lanes(d)) {
    const auto low_bits =
        hn::And(hn::ShiftRightSame(hn::LoadU(d, low.bytes + i), low.shift), hn::Set(d, low.mask));
    const auto high_bits = hn::And(hn::ShiftRightSame(hn::LoadU(d, high.bytes + i), high.shift),
                                   hn::Set(d, high.mask));
    const auto bits = hn::Or(low_bits, hn::ShiftLeft<kHigh>(high_bits));
    hn::StoreU(hn::Sub(hn::BitCast(ds, bits), hn::Set(ds, bias)), ds, codes + i);
  }
}

// 32 nibbles: the low ones of 16 bytes, then the high ones.
HWY_INLINE void unpack_nibbles(const std::uint8_t* bytes, Codes bias, Codes* codes) {
  unpack<16>({bytes, 0, 0x0f}, bias, codes);
  unpack<16>({bytes, 4, 0x0f}, bias, codes + 16);
}

// 32 bits to 32 bytes of 0 or 1.
HWY_INLINE void spread_bits(const std::uint8_t* bits, std::uint8_t* bytes) {
  constexpr std::uint64_t kEvery = 0x0101010101010101;
  constexpr std::uint64_t kDiagonal = 0x8040201008040201;
  for (int i = 0; i < 4; ++i) {
    // Byte k keeps bit k alone; adding 0x7f carries any bit into the top.
    const std::uint64_t chosen = (bits[i] * kEvery) & kDiagonal;
    const std::uint64_t ones = ((chosen + 0x7f * kEvery) >> 7) & kEvery;
    std::memcpy(bytes + 8 * i, &ones, sizeof(ones));
  }
}

HWY_INLINE void unpack_five_bits(const std::uint8_t* high, const std::uint8_t* nibbles, Codes bias,
                                 Codes* codes) {
  alignas(64) std::uint8_t ones[32];
  spread_bits(high, ones);
  unpack<4, 16>({nibbles, 0, 0x0f}, {ones, 0, 1}, bias, codes);
  unpack<4, 16>({nibbles, 4, 0x0f}, {ones + 16, 0, 1}, bias, codes + 16);
}

struct Q4_0 {
  static HWY_INLINE void expand(const std::uint8_t* block, float* out) {
    alignas(64) Codes codes[32];
    unpack_nibbles(block + 2, 8, codes);
    scale<32>(codes, load_half(block), out);
  }
};

struct Q4_1 {
  static HWY_INLINE void expand(const std::uint8_t* block, float* out) {
    alignas(64) Codes codes[32];
    unpack_nibbles(block + 4, 0, codes);
    scale<Offset::kPlus, 32>(codes, load_half(block), load_half(block + 2), out);
  }
};

struct Q5_0 {
  static HWY_INLINE void expand(const std::uint8_t* block, float* out) {
    alignas(64) Codes codes[32];
    unpack_five_bits(block + 2, block + 6, 16, codes);
    scale<32>(codes, load_half(block), out);
  }
};

struct Q5_1 {
  static HWY_INLINE void expand(const std::uint8_t* block, float* out) {
    alignas(64) Codes codes[32];
    unpack_five_bits(block + 4, block + 8, 0, codes);
    scale<Offset::kPlus, 32>(codes, load_half(block), load_half(block + 2), out);
  }
};

struct Q8_0 {
  static HWY_INLINE void expand(const std::uint8_t* block, float* out) {
    scale<32>(reinterpret_cast<const Codes*>(block + 2), load_half(block), out);
  }
};

// 16 groups of 16: scale and minimum of 4 bits each [16], codes of 2 bits [64], d, dmin.
struct Q2_K {
  static HWY_INLINE void expand(const std::uint8_t* block, float* out) {
    const float d = load_half(block + 80);
    const float dmin = load_half(block + 82);
    alignas(64) Codes codes[32];
    for (int run = 0; run < 8; ++run) {
      unpack<32>({block + 16 + run / 4 * 32, run % 4 * 2, 3}, 0, codes);
      for (int half = 0; half < 2; ++half) {
        const std::uint8_t scales = block[run * 2 + half];
        scale<Offset::kMinus, 16>(codes + half * 16, d * static_cast<float>(scales & 0x0f),
                                  dmin * static_cast<float>(scales >> 4),
                                  out + run * 32 + half * 16);
      }
    }
  }
};

// 16 groups of 16: third bits [32], codes of 2 bits [64], scales of 6 bits [12], d.
struct Q3_K {
  static HWY_INLINE void expand(const std::uint8_t* block, float* out) {
    const std::uint8_t* scales = block + 96;
    const float d = load_half(block + 108);
    alignas(64) Codes codes[32];
    for (int run = 0; run < 8; ++run) {
      unpack<2, 32>({block + 32 + run / 4 * 32, run % 4 * 2, 3}, {block, run, 1}, 4, codes);
      for (int half = 0; half < 2; ++half) {
        const int group = run * 2 + half;
        const int low = (scales[group % 8] >> (group / 8 * 4)) & 0x0f;
        const int high = (scales[8 + group % 4] >> (group / 4 * 2)) & 3;
        scale<16>(codes + half * 16, d * static_cast<float>((low | high << 4) - 32),
                  out + group * 16);
      }
    }
  }
};

// The scale and the minimum of a group of 32, of 6 bits each, out of 12 bytes for 8 groups.
HWY_INLINE void load_six_bits(const std::uint8_t* packed, int group, float* scale_of,
                              float* minimum_of) {
  int scale = 0;
  int minimum = 0;
  if (group < 4) {
    scale = packed[group] & 0x3f;
    minimum = packed[group + 4] & 0x3f;
  } else {
    scale = (packed[group + 4] & 0x0f) | ((packed[group - 4] >> 2) & 0x30);
    minimum = (packed[group + 4] >> 4) | ((packed[group] >> 2) & 0x30);
  }
  *scale_of = static_cast<float>(scale);
  *minimum_of = static_cast<float>(minimum);
}

// 8 groups of 32: d, dmin, scales and minimums [12], nibbles [128].
struct Q4_K {
  static HWY_INLINE void expand(const std::uint8_t* block, float* out) {
    const float d = load_half(block);
    const float dmin = load_half(block + 2);
    alignas(64) Codes codes[32];
    for (int group = 0; group < 8; ++group) {
      float factor = 0;
      float minimum = 0;
      load_six_bits(block + 4, group, &factor, &minimum);
      unpack<32>({block + 16 + group / 2 * 32, group % 2 * 4, 0x0f}, 0, codes);
      scale<Offset::kMinus, 32>(codes, d * factor, dmin * minimum, out + group * 32);
    }
  }
};

// 8 groups of 32: d, dmin, scales and minimums [12], fifth bits [32], nibbles [128].
struct Q5_K {
  static HWY_INLINE void expand(const std::uint8_t* block, float* out) {
    const float d = load_half(block);
    const float dmin = load_half(block + 2);
    alignas(64) Codes codes[32];
    for (int group = 0; group < 8; ++group) {
      float factor = 0;
      float minimum = 0;
      load_six_bits(block + 4, group, &factor, &minimum);
      unpack<4, 32>({block + 48 + group / 2 * 32, group % 2 * 4, 0x0f}, {block + 16, group, 1}, 0,
                    codes);
      scale<Offset::kMinus, 32>(codes, d * factor, dmin * minimum, out + group * 32);
    }
  }
};

// 16 groups of 16: nibbles [128], upper pairs of bits [64], signed scales [16], d.
struct Q6_K {
  static HWY_INLINE void expand(const std::uint8_t* block, float* out) {
    const auto* scales = reinterpret_cast<const std::int8_t*>(block + 192);
    const float d = load_half(block + 208);
    alignas(64) Codes codes[32];
    for (int run = 0; run < 8; ++run) {
      const int part = run / 4;
      const int quarter = run % 4;
      unpack<4, 32>({block + part * 64 + quarter % 2 * 32, quarter / 2 * 4, 0x0f},
                    {block + 128 + part * 32, quarter * 2, 3}, 32, codes);
      for (int half = 0; half < 2; ++half) {
        scale<16>(codes + half * 16, d * static_cast<float>(scales[run * 2 + half]),
                  out + run * 32 + half * 16);
      }
    }
  }
};

template <typename Block>
void expand_all(const std::uint8_t* blocks, std::size_t count, std::size_t bytes,
                std::size_t elements, float* out) {
  for (std::size_t i = 0; i < count; ++i) Block::expand(blocks + i * bytes, out + i * elements);
}

void expand_blocks(const GgmlType& type, const std::uint8_t* blocks, std::size_t count,
                   float* out) {
  const auto run = [&](auto expand) {
    expand(blocks, count, type.block_bytes, type.block_elements, out);
  };
  switch (type.coding) {
    case Coding::kPlain:
      break;
    case Coding::kQ4_0:
      return run(expand_all<Q4_0>);
    case Coding::kQ4_1:
      return run(expand_all<Q4_1>);
    case Coding::kQ5_0:
      return run(expand_all<Q5_0>);
    case Coding::kQ5_1:
      return run(expand_all<Q5_1>);
    case Coding::kQ8_0:
      return run(expand_all<Q8_0>);
    case Coding::kQ2_K:
      return run(expand_all<Q2_K>);
    case Coding::kQ3_K:
      return run(expand_all<Q3_K>);
    case Coding::kQ4_K:
      return run(expand_all<Q4_K>);
    case Coding::kQ5_K:
      return run(expand_all<Q5_K>);
    case Coding::kQ6_K:
      return run(expand_all<Q6_K>);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace haul::core
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace haul::core {

HWY_EXPORT(expand_blocks);

void dequantise(Coding coding, std::span<const std::byte> blocks, std::span<float> values) {
  if (coding == Coding::kPlain) throw Error(ErrorKind::kInternal, "dequantise: a plain tensor");
  const GgmlType& type = ggml_type(coding);
  const std::size_t count = blocks.size() / type.block_bytes;
  if (blocks.size() % type.block_bytes != 0 || values.size() != count * type.block_elements) {
    throw Error(ErrorKind::kInternal, fmt::format("dequantise: {} bytes of {} for {} values",
                                                  blocks.size(), type.name, values.size()));
  }
  HWY_DYNAMIC_DISPATCH(expand_blocks)
  (type, reinterpret_cast<const std::uint8_t*>(blocks.data()), count, values.data());
}

}  // namespace haul::core
#endif  // HWY_ONCE
