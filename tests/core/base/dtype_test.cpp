#include "haul/dtype.h"

#include <gtest/gtest.h>

namespace haul {
namespace {

TEST(Dtype, EveryTypeIsFoundByItsOwnName) {
  for (int i = 0; i < kDtypeCount; ++i) {
    const auto dtype = static_cast<Dtype>(i);
    EXPECT_EQ(dtype_from_name(name(dtype)), dtype);
    if (!torch_name(dtype).empty()) {
      EXPECT_EQ(dtype_from_torch_name(torch_name(dtype)), dtype);
    }
  }
}

TEST(Dtype, UnknownNamesAreNothing) {
  EXPECT_FALSE(dtype_from_name("F7").has_value());
  EXPECT_FALSE(dtype_from_name("").has_value());
  EXPECT_FALSE(dtype_from_torch_name("").has_value());
  EXPECT_EQ(dtype_from_torch_name("torch.bfloat16"), Dtype::kBF16);
}

TEST(Dtype, KnowsSizesBelowAByte) {
  EXPECT_EQ(bits(Dtype::kF4), 4);
  EXPECT_EQ(bits(Dtype::kF6E2M3), 6);
  EXPECT_EQ(bits(Dtype::kC64), 64);
}

}  // namespace
}  // namespace haul
