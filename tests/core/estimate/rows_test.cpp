#include <gtest/gtest.h>

#include "haul/estimate_rows.h"
#include "tests/core/estimate/tiny_model.h"

namespace haul {
namespace {

using test::kTinyBuffer;
using test::kTinyLinears;
using test::kTinyNorms;
using test::kTinyParameters;
using test::kTinyTable;
using test::tiny_decoder;

MaximumSizes sizes_of(Bits total_bytes, Bits largest_bytes) {
  return {total_bytes * 8, {largest_bytes * 8, {"embeddings"}}};
}

TEST(PeerRow, DividesEveryByteOfTheFloat32Model) {
  const MaximumSizes sizes = sizes_of(433'249'280, 90'669'056);
  EXPECT_EQ(peer_row(sizes, RowDtype::kFloat32).total, 433'249'280);
  EXPECT_EQ(peer_row(sizes, RowDtype::kFloat16).total, 216'624'640);
  EXPECT_EQ(peer_row(sizes, RowDtype::kBFloat16).largest_layer, 45'334'528);
  EXPECT_EQ(peer_row(sizes, RowDtype::kFp8).total, 108'312'320);
  EXPECT_EQ(peer_row(sizes, RowDtype::kInt8).total, 108'312'320);
  EXPECT_EQ(peer_row(sizes, RowDtype::kInt4).largest_layer, 11'333'632);
}

TEST(PeerRow, KeepsHalvesOfBytes) {
  EXPECT_EQ(peer_row(sizes_of(236, 100), RowDtype::kInt4).total, 29.5);
}

TEST(PeerRow, TrainsWithFourTimesTheBytesOrTwiceInHalfPrecision) {
  const MaximumSizes sizes = sizes_of(1000, 100);
  EXPECT_EQ(peer_row(sizes, RowDtype::kFloat32).training_adam, 4000);
  for (const RowDtype half : {RowDtype::kFloat16, RowDtype::kBFloat16, RowDtype::kFp8}) {
    EXPECT_EQ(peer_row(sizes, half).training_adam, 2000) << name(half);
  }
  EXPECT_FALSE(peer_row(sizes, RowDtype::kInt8).training_adam);
  EXPECT_FALSE(peer_row(sizes, RowDtype::kInt4).training_adam);
}

TEST(RowDtype, IsFoundByTheNameThatItPrints) {
  for (const RowDtype dtype : kRowDtypes) EXPECT_EQ(row_dtype_from_name(name(dtype)), dtype);
  EXPECT_FALSE(row_dtype_from_name("int2"));
}

TEST(TrueRow, KeepsIntegersInEveryDtype) {
  const Description d = tiny_decoder();
  const TrueRow full = true_row(d, RowDtype::kFloat32);
  EXPECT_EQ(full.total, kTinyParameters * 4 + kTinyBuffer);
  EXPECT_EQ(full.unshrunk, kTinyBuffer);
  const TrueRow half = true_row(d, RowDtype::kFloat16);
  EXPECT_EQ(half.total, kTinyParameters * 2 + kTinyBuffer);
  EXPECT_EQ(half.unshrunk, kTinyBuffer);
  EXPECT_EQ(true_row(d, RowDtype::kFp8).total, kTinyParameters + kTinyBuffer);
}

TEST(TrueRow, ABoolTakesAByte) {
  Description d;
  d.root = {"", "M", {}, {{"mask", Dtype::kBool, {12}, true}}, {}};
  EXPECT_EQ(true_row(d, RowDtype::kFloat16).total, 12u);
}

TEST(TrueRow, QuantisesTheLinearLayersAlone) {
  const Description d = tiny_decoder();
  const Bytes rest = (kTinyTable + kTinyNorms) * 2 + kTinyBuffer;
  const TrueRow eight = true_row(d, RowDtype::kInt8);
  const Bytes rows = 2 * (8 + 4 + 4 + 8 + 16 + 16 + 8);
  EXPECT_EQ(eight.total, kTinyLinears + 4 * rows + rest);
  EXPECT_EQ(eight.unshrunk, rest);
  const TrueRow four = true_row(d, RowDtype::kInt4);
  const Bytes scales = 2 * (1 + 1 + 1 + 1 + 2 + 2 + 2);
  EXPECT_EQ(four.total, kTinyLinears / 2 + 4 * scales + rest);
}

TEST(ParameterCount, CountsTiedParametersOnceAndNoBuffers) {
  EXPECT_EQ(parameter_count(tiny_decoder()), kTinyParameters);
}

}  // namespace
}  // namespace haul
