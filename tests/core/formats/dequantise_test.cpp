#include "core/formats/dequantise.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "core/formats/ggml_type.h"
#include "tests/support/expect_error.h"
#include "tests/support/slow_dequantise.h"

namespace haul::core {
namespace {

constexpr Coding kCodings[] = {Coding::kQ4_0, Coding::kQ4_1, Coding::kQ5_0, Coding::kQ5_1,
                               Coding::kQ8_0, Coding::kQ2_K, Coding::kQ3_K, Coding::kQ4_K,
                               Coding::kQ5_K, Coding::kQ6_K};

std::vector<std::byte> random_blocks(Coding coding, std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> blocks(count * ggml_type(coding).block_bytes);
  for (std::byte& byte : blocks) byte = static_cast<std::byte>(random());
  return blocks;
}

// Equal bits, but for the sign and payload of NaN, which the hardware chooses.
void expect_same(const std::vector<float>& found, const std::vector<float>& expected,
                 std::string_view name) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(found[i])) continue;
    ASSERT_EQ(std::bit_cast<std::uint32_t>(found[i]), std::bit_cast<std::uint32_t>(expected[i]))
        << name << " value " << i << ": " << found[i] << " instead of " << expected[i];
  }
}

std::vector<float> fast(Coding coding, std::span<const std::byte> blocks) {
  const GgmlType& type = ggml_type(coding);
  std::vector<float> values(blocks.size() / type.block_bytes * type.block_elements);
  dequantise(coding, blocks, values);
  return values;
}

TEST(Dequantise, EqualsTheSlowReferenceOnRandomBlocksOfEveryCoding) {
  for (const Coding coding : kCodings) {
    const auto blocks = random_blocks(coding, 400, 7);
    expect_same(fast(coding, blocks), test::slow_dequantise(coding, blocks),
                ggml_type(coding).name);
  }
}

TEST(Dequantise, EqualsTheSlowReferenceOnEveryInstructionSet) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    for (const Coding coding : kCodings) {
      const auto blocks = random_blocks(coding, 40, 11);
      expect_same(fast(coding, blocks), test::slow_dequantise(coding, blocks),
                  ggml_type(coding).name);
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(Dequantise, EveryHalfAsScaleIsExact) {
  std::vector<std::byte> blocks(std::size_t{65536} * 34);
  for (std::uint32_t half = 0; half < 65536; ++half) {
    std::byte* block = blocks.data() + std::size_t{half} * 34;
    block[0] = static_cast<std::byte>(half & 0xff);
    block[1] = static_cast<std::byte>(half >> 8);
    for (std::uint32_t i = 0; i < 32; ++i) block[2 + i] = static_cast<std::byte>(half * 31 + i * 8);
  }
  expect_same(fast(Coding::kQ8_0, blocks), test::slow_dequantise(Coding::kQ8_0, blocks), "Q8_0");
}

TEST(Dequantise, GivesTheValuesWrittenByHand) {
  // Scale 0.5, minimum -1: nibbles 0, 1, …, 15 and then 15, …, 0.
  std::vector<std::byte> block = {std::byte{0x00}, std::byte{0x38}, std::byte{0x00},
                                  std::byte{0xbc}};
  for (int i = 0; i < 16; ++i) block.push_back(static_cast<std::byte>(i | (15 - i) << 4));
  const auto values = fast(Coding::kQ4_1, block);
  ASSERT_EQ(values.size(), 32u);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(values[static_cast<std::size_t>(i)], 0.5f * static_cast<float>(i) - 1);
    EXPECT_EQ(values[static_cast<std::size_t>(i) + 16], 0.5f * static_cast<float>(15 - i) - 1);
  }
}

TEST(Dequantise, RefusesSizesThatDoNotBelongTogether) {
  std::vector<std::byte> blocks(36);
  std::vector<float> values(32);
  const auto expand = [&] { dequantise(Coding::kQ4_0, blocks, values); };
  test::expect_error(ErrorKind::kInternal, testing::HasSubstr("36 bytes of Q4_0 for 32 values"),
                     expand);
  blocks.resize(17);
  test::expect_error(ErrorKind::kInternal, testing::HasSubstr("17 bytes of Q4_0"), expand);
}

}  // namespace
}  // namespace haul::core
