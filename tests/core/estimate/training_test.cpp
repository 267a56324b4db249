#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "haul/error.h"
#include "haul/estimate.h"
#include "tests/core/estimate/tiny_model.h"
#include "tests/support/expect_error.h"

namespace haul {
namespace {

using test::kTinyBuffer;
using test::kTinyLinears;
using test::kTinyParameters;
using test::kTinyTable;
using test::tiny_decoder;
using testing::HasSubstr;

std::map<Tag, Bytes> table_of(const TrainingRequest& request,
                              const Description& description = tiny_decoder()) {
  std::map<Tag, Bytes> result;
  for (const TableEntry& entry : training_table(description, request)) {
    result[entry.tag] += entry.bytes;
  }
  return result;
}

TrainingRequest full(Precision precision) {
  TrainingRequest request;
  request.precision = precision;
  request.sequence = 10;
  request.batch = 3;
  return request;
}

TrainingRequest lora(Precision precision) {
  TrainingRequest request = full(precision);
  request.mode = TrainMode::kLora;
  request.lora_rank = 2;
  return request;
}

TEST(FullTraining, InFloat32TakesSixteenBytesAParameter) {
  const auto table = table_of(full(Precision::kFp32));
  EXPECT_EQ(table.at(Tag::kWeights), 4 * kTinyParameters + kTinyBuffer);
  EXPECT_FALSE(table.contains(Tag::kMasterWeights));
  EXPECT_EQ(table.at(Tag::kGradients), 4 * kTinyParameters);
  EXPECT_EQ(table.at(Tag::kOptimizer), 8 * kTinyParameters);
}

TEST(FullTraining, InHalfPrecisionKeepsMasterWeightsAndCopiesOfMatrices) {
  const auto table = table_of(full(Precision::kBf16));
  EXPECT_EQ(table.at(Tag::kMasterWeights), 4 * kTinyParameters);
  // The table is copied for the head that is tied to it; the norms are not copied.
  EXPECT_EQ(table.at(Tag::kWeights), 2 * (kTinyLinears + kTinyTable) + kTinyBuffer);
  EXPECT_EQ(table.at(Tag::kGradients), 4 * kTinyParameters);
  EXPECT_EQ(table, table_of(full(Precision::kFp16)));
}

TEST(FullTraining, KeepsEveryLayersActivations) {
  const auto table = table_of(full(Precision::kBf16));
  // Three products cast the first norm's output, two the second's, one the last's.
  const Bytes norms = 8 * (4 + 3 * 2) + 8 * (4 + 2 * 2);
  const Bytes attention = 2 * (2 * 8 + 2 * 4) + 4 * 4;
  const Bytes mlp = 2 * 4 * 16;
  EXPECT_EQ(table.at(Tag::kActivations), 30 * (2 * (norms + attention + mlp) + 8 * (4 + 2)));
  EXPECT_EQ(table.at(Tag::kLogits), 30u * 100 * (2 + 8));
}

TEST(Recompute, KeepsALayersInputAndComputesOneAgain) {
  TrainingRequest request = full(Precision::kBf16);
  request.recompute = true;
  Description d = tiny_decoder();
  const Bytes ends = 30 * 8 * (4 + 2);
  const Bytes kept = 2 * 30 * 8 * 4;
  // The logits are larger than a layer here, and gone when it is computed again.
  EXPECT_EQ(table_of(request, d).at(Tag::kActivations), ends + kept);
  d.root.children.pop_back();
  d.tied.clear();
  EXPECT_EQ(table_of(request, d).at(Tag::kActivations),
            ends + kept + training_layer_bytes(*d.dimensions, request, false));
}

TEST(Lora, TrainsAdaptersOfTheLinearLayersAlone) {
  const std::uint64_t adapters = 2 * 2 * (16 + 12 + 12 + 16 + 24 + 24 + 24);
  EXPECT_EQ(lora_parameter_count(tiny_decoder(), 2), adapters);
  const auto table = table_of(lora(Precision::kBf16));
  EXPECT_EQ(table.at(Tag::kWeights), 2 * kTinyParameters + kTinyBuffer + 2 * adapters);
  EXPECT_EQ(table.at(Tag::kMasterWeights), 4 * adapters);
  EXPECT_EQ(table.at(Tag::kGradients), 4 * adapters);
  EXPECT_EQ(table.at(Tag::kOptimizer), 8 * adapters);
  const auto single = table_of(lora(Precision::kFp32));
  EXPECT_EQ(single.at(Tag::kWeights), 4 * kTinyParameters + kTinyBuffer + 4 * adapters);
  EXPECT_FALSE(single.contains(Tag::kMasterWeights));
}

TEST(Lora, AdaptsAMatrixThatLiesTransposed) {
  Description d;
  d.root = {"", "M", {}, {}, {{"c", "Conv1D", {{"weight", Dtype::kF32, {8, 24}}}, {}, {}}}};
  EXPECT_EQ(lora_parameter_count(d, 4), 4u * (8 + 24));
}

TEST(Training, ADecodersCrossAttentionAddsToItsLayers) {
  const Dimensions d = *tiny_decoder().dimensions;
  const TrainingRequest request = full(Precision::kBf16);
  EXPECT_EQ(training_layer_bytes(d, request, true) - training_layer_bytes(d, request, false),
            30u * (8 * (4 + 3 * 2) + 2 * (2 * 8 + 2 * 4) + 4 * 4));
}

TEST(Training, ALayerWithoutCastsKeepsEachNormsOutputOnce) {
  const Dimensions d = *tiny_decoder().dimensions;
  EXPECT_EQ(training_layer_bytes(d, full(Precision::kFp32), false),
            30u * (8 * 4 * 4 + 4 * (2 * 8 + 2 * 4) + 4 * 4 + 4 * 4 * 16));
  EXPECT_EQ(training_layer_bytes(d, lora(Precision::kBf16), false),
            30u * (8 * 4 * 2 + 2 * (2 * 8 + 2 * 4) + 4 * 4 + 2 * 4 * 16));
}

TEST(Training, ALayerIsWhatTorchWasSeenToKeep) {
  // A layer of stock modules (RMSNorm, Linear, scaled dot product attention, SiLU) under bfloat16
  // autocast: the bytes of its saved tensors without weights, norms' scales and, because the CPU's
  // norm is not fused, its normed inputs.
  Dimensions d;
  d.hidden = 64;
  d.heads = 4;
  d.kv_heads = 2;
  d.head_size = 16;
  d.intermediate = 192;
  d.gated_mlp = true;
  TrainingRequest request = full(Precision::kBf16);
  request.batch = 2;
  request.sequence = 128;
  EXPECT_EQ(training_layer_bytes(d, request, false), 790'528u);
}

TEST(OptimizerState, OfEachKind) {
  EXPECT_EQ(optimizer_bytes(Optimizer::kAdamW, {10, 20}), 1600u);
  EXPECT_EQ(optimizer_bytes(Optimizer::kSgd, {10, 20}), 0u);
  EXPECT_EQ(optimizer_bytes(Optimizer::kAdafactor, {10, 20}), 4u * (10 + 20));
  EXPECT_EQ(optimizer_bytes(Optimizer::kAdafactor, {3, 10, 20}), 4u * (30 + 60));
  EXPECT_EQ(optimizer_bytes(Optimizer::kAdafactor, {20}), 80u);
  EXPECT_EQ(optimizer_bytes(Optimizer::kAdafactor, {0, 20}), 0u);
}

TEST(OptimizerState, EightBitsWithScalesForLargeTensorsOnly) {
  EXPECT_EQ(optimizer_bytes(Optimizer::kAdam8Bit, {4095}), 8u * 4095);
  EXPECT_EQ(optimizer_bytes(Optimizer::kAdam8Bit, {4096}), 2u * 4096 + 8 * 16);
  EXPECT_EQ(optimizer_bytes(Optimizer::kAdam8Bit, {4097}), 2u * 4097 + 8 * 17);
}

TEST(Training, RefusesNumbersBelowOneAndBeyondMeasure) {
  TrainingRequest none = full(Precision::kBf16);
  none.sequence = 0;
  test::expect_error(ErrorKind::kUsage, HasSubstr("at least 1"),
                     [&] { training_table(tiny_decoder(), none); });
  TrainingRequest huge = full(Precision::kBf16);
  huge.sequence = std::int64_t{1} << 62;
  test::expect_error(ErrorKind::kUnsupported, HasSubstr("64 bits"),
                     [&] { training_table(tiny_decoder(), huge); });
}

}  // namespace
}  // namespace haul
