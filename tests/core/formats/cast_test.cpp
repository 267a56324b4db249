#include "core/formats/cast.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace haul::core {
namespace {

template <typename To, typename From>
std::vector<To> cast(Dtype from, const std::vector<From>& in, Dtype to) {
  std::vector<To> out(in.size());
  cast_floats(from, std::as_bytes(std::span(in)), to, std::as_writable_bytes(std::span(out)));
  return out;
}

std::uint16_t half(float value) {
  return cast<std::uint16_t>(Dtype::kF32, std::vector<float>{value}, Dtype::kF16)[0];
}

std::uint16_t brain(float value) {
  return cast<std::uint16_t>(Dtype::kF32, std::vector<float>{value}, Dtype::kBF16)[0];
}

std::vector<std::uint16_t> all_words() {
  std::vector<std::uint16_t> words;
  for (int i = 0; i < 65536; ++i) words.push_back(static_cast<std::uint16_t>(i));
  return words;
}

TEST(CastFloats, EveryHalfSurvivesAFloat) {
  const auto words = all_words();
  const auto floats = cast<float>(Dtype::kF16, words, Dtype::kF32);
  const auto back = cast<std::uint16_t>(Dtype::kF32, floats, Dtype::kF16);
  for (const std::uint16_t word : words) {
    if (std::isnan(floats[word])) {
      EXPECT_EQ(back[word] & 0x7e00, 0x7e00) << word;
    } else {
      ASSERT_EQ(back[word], word);
    }
  }
}

TEST(CastFloats, EveryPairOfNeighbouringHalvesIsRoundedAtItsMiddle) {
  const auto floats = cast<float>(Dtype::kF16, all_words(), Dtype::kF32);
  for (std::uint16_t word = 0; word < 0x7bff; ++word) {
    const float middle = floats[word] + (floats[word + 1] - floats[word]) / 2;
    const std::uint16_t even = word % 2 == 0 ? word : static_cast<std::uint16_t>(word + 1);
    ASSERT_EQ(half(middle), even);
    ASSERT_EQ(half(std::nextafter(middle, 0.0F)), word);
    ASSERT_EQ(half(std::nextafter(middle, 1e9F)), word + 1);
    ASSERT_EQ(half(-middle), even | 0x8000);
  }
}

TEST(CastFloats, HalvesOverflowToInfinity) {
  EXPECT_EQ(half(65504.0F), 0x7bff);
  EXPECT_EQ(half(65519.996F), 0x7bff);
  EXPECT_EQ(half(65520.0F), 0x7c00);
  EXPECT_EQ(half(-std::numeric_limits<float>::max()), 0xfc00);
  EXPECT_EQ(half(std::numeric_limits<float>::infinity()), 0x7c00);
  EXPECT_EQ(half(std::numeric_limits<float>::denorm_min()), 0);
}

TEST(CastFloats, BrainFloatsAreRoundedToEven) {
  EXPECT_EQ(brain(1.0F), 0x3f80);
  EXPECT_EQ(brain(std::bit_cast<float>(0x3f808000U)), 0x3f80);
  EXPECT_EQ(brain(std::bit_cast<float>(0x3f818000U)), 0x3f82);
  EXPECT_EQ(brain(std::bit_cast<float>(0x3f808001U)), 0x3f81);
  EXPECT_EQ(brain(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(brain(std::bit_cast<float>(0x7f800001U)), 0x7fc0);
}

TEST(CastFloats, DoublesAreRoundedOnce) {
  const auto cast_double = [](double value, Dtype to) {
    return cast<std::uint16_t>(Dtype::kF64, std::vector<double>{value}, to)[0];
  };
  // Just beside the middle of two values: as a float it would be the middle.
  EXPECT_EQ(cast_double(1 + 0x1p-11 + 0x1p-40, Dtype::kF16), 0x3c01);
  EXPECT_EQ(cast_double(1 + 0x3p-11 - 0x1p-40, Dtype::kF16), 0x3c01);
  EXPECT_EQ(cast_double(-1 - 0x1p-11 - 0x1p-40, Dtype::kF16), 0xbc01);
  EXPECT_EQ(cast_double(1 + 0x1p-8 + 0x1p-40, Dtype::kBF16), 0x3f81);
  EXPECT_EQ(cast_double(1 + 0x3p-8 - 0x1p-40, Dtype::kBF16), 0x3f81);
  EXPECT_EQ(cast_double(0x1p-25 + 0x1p-60, Dtype::kF16), 1);
  EXPECT_EQ(cast_double(0x1p-25, Dtype::kF16), 0);
  EXPECT_EQ(cast_double(65520 - 0x1p-30, Dtype::kF16), 0x7bff);
  EXPECT_EQ(cast_double(1e300, Dtype::kF16), 0x7c00);
  EXPECT_EQ(cast_double(-1e300, Dtype::kBF16), 0xff80);
  EXPECT_EQ(cast_double(1e-300, Dtype::kBF16), 0);
}

TEST(CastFloats, GoesBetweenAllFour) {
  const std::vector<double> values{0.0, -0.0, 1.5, -2.0, 0.0078125};
  for (const Dtype middle : {Dtype::kF16, Dtype::kBF16, Dtype::kF32, Dtype::kF64}) {
    std::vector<std::byte> stored(values.size() * static_cast<std::size_t>(bits(middle)) / 8);
    cast_floats(Dtype::kF64, std::as_bytes(std::span(values)), middle, stored);
    std::vector<double> back(values.size(), 7.0);
    cast_floats(middle, stored, Dtype::kF64, std::as_writable_bytes(std::span(back)));
    EXPECT_EQ(back, values);
    EXPECT_TRUE(std::signbit(back[1]));
  }
  EXPECT_FALSE(is_castable(Dtype::kF8E4M3));
  EXPECT_FALSE(is_castable(Dtype::kI32));
}

// Several are cast at once: any number of them, from any address, and nothing behind them.
TEST(CastFloats, OfAnyNumberAtAnyAddressIsTheSameAsOneByOne) {
  constexpr std::size_t kMost = 70;
  const std::vector<Dtype> all{Dtype::kF16, Dtype::kBF16, Dtype::kF32, Dtype::kF64};
  std::vector<double> values;
  for (std::size_t i = 0; i < kMost; ++i) {
    values.push_back((i % 2 == 0 ? 1 : -1) *
                     std::ldexp(1.0 + 0.013 * static_cast<double>(i), static_cast<int>(i) - 40));
  }
  for (const Dtype from : all) {
    for (const Dtype to : all) {
      const std::size_t in_size = static_cast<std::size_t>(bits(from)) / 8;
      const std::size_t out_size = static_cast<std::size_t>(bits(to)) / 8;
      std::vector<std::byte> in(1 + kMost * in_size);
      cast_floats(Dtype::kF64, std::as_bytes(std::span(values)), from, std::span(in).subspan(1));
      std::vector<std::byte> one_by_one(kMost * out_size);
      for (std::size_t i = 0; i < kMost; ++i) {
        cast_floats(from, std::span(in).subspan(1 + i * in_size, in_size), to,
                    std::span(one_by_one).subspan(i * out_size, out_size));
      }
      for (std::size_t count = 0; count <= kMost; ++count) {
        std::vector<std::byte> out(1 + kMost * out_size, std::byte{0x5a});
        cast_floats(from, std::span(in).subspan(1, count * in_size), to,
                    std::span(out).subspan(1, count * out_size));
        const auto end = out.begin() + static_cast<std::ptrdiff_t>(1 + count * out_size);
        ASSERT_TRUE(std::equal(out.begin() + 1, end, one_by_one.begin()))
            << static_cast<int>(from) << ' ' << static_cast<int>(to) << ' ' << count;
        ASSERT_TRUE(std::all_of(end, out.end(), [](std::byte b) { return b == std::byte{0x5a}; }));
      }
    }
  }
}

TEST(CastFloats, NeedsNoAlignment) {
  std::vector<std::byte> room(9);
  const float value = 1.0F;
  std::memcpy(room.data() + 1, &value, sizeof(value));
  cast_floats(Dtype::kF32, std::span(room).subspan(1, 4), Dtype::kBF16,
              std::span(room).subspan(5, 2));
  EXPECT_EQ(room[6], std::byte{0x3f});
}

}  // namespace
}  // namespace haul::core
