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
using test::kTinyParameters;
using test::tiny_decoder;
using testing::HasSubstr;

std::map<Tag, Bytes> by_tag(const std::vector<TableEntry>& table) {
  std::map<Tag, Bytes> result;
  for (const TableEntry& entry : table) result[entry.tag] += entry.bytes;
  return result;
}

InferenceRequest request(std::int64_t context, std::int64_t batch) {
  InferenceRequest result;
  result.context = context;
  result.batch = batch;
  return result;
}

TEST(InferenceTable, ListsEveryReason) {
  const auto table = by_tag(inference_table(tiny_decoder(), request(10, 3)));
  EXPECT_EQ(table.at(Tag::kWeights), kTinyParameters * 2 + kTinyBuffer);
  EXPECT_EQ(table.at(Tag::kKv), 2u * 2 * 2 * 2 * 10 * 3 * 2);  // 2·L·K·D·T·B·s
  EXPECT_EQ(table.at(Tag::kActivations),
            30u * 2 * (4 * 8 + 2 * 2 + (5 * 4 + 3 * 2) * 2) + (2 + 1) * 3 * 10 * 10);
  EXPECT_EQ(table.at(Tag::kLogits), 3u * 100 * (2 + 4));
  EXPECT_EQ(table.at(Tag::kWorkspace), 32 * kMiB);
}

TEST(InferenceTable, SumsToItsTotal) {
  const auto table = inference_table(tiny_decoder(), request(10, 3));
  Bytes sum = 0;
  for (const TableEntry& entry : table) sum += entry.bytes;
  EXPECT_EQ(total_bytes(table), sum);
}

TEST(InferenceTable, AModelWithoutDimensionsHasNoActivations) {
  Description d = tiny_decoder();
  d.dimensions.reset();
  const auto table = by_tag(inference_table(d, request(10, 1)));
  EXPECT_EQ(table.size(), 2u);
  EXPECT_TRUE(table.contains(Tag::kWeights));
  EXPECT_TRUE(table.contains(Tag::kWorkspace));
}

TEST(InferenceTable, AnEncoderHasNoKvCacheAndLogitsOfAllTokens) {
  Description d = tiny_decoder();
  d.dimensions->causal = false;
  const auto table = by_tag(inference_table(d, request(5000, 2)));
  EXPECT_FALSE(table.contains(Tag::kKv));
  EXPECT_EQ(table.at(Tag::kLogits), 2u * 5000 * 100 * 6);
  // All tokens pass at once, however long the sequence.
  EXPECT_EQ(table.at(Tag::kActivations), 2u * 5000 * 2 * (4 * 8 + 2 * 2 + (5 * 4 + 3 * 2) * 2));
}

TEST(InferenceTable, WithoutAHeadThereAreNoLogits) {
  Description d = tiny_decoder();
  d.root.children.pop_back();
  d.tied.clear();
  EXPECT_FALSE(by_tag(inference_table(d, request(10, 1))).contains(Tag::kLogits));
}

TEST(InferenceTable, AClassifierMayFollowTheHeadButAnInnerLayerIsNone) {
  Description d = tiny_decoder();
  d.root.children.push_back(test::linear("score", 8, 2));
  EXPECT_TRUE(by_tag(inference_table(d, request(10, 1))).contains(Tag::kLogits));
  d.root.children.push_back(test::linear("down", 8, 8));
  EXPECT_FALSE(by_tag(inference_table(d, request(10, 1))).contains(Tag::kLogits));
}

constexpr Bytes kPairs = 2 + 1;  // bytes for two tokens of a prompt with padding

// Every head with keys and values of its own.
Dimensions unshared() {
  Dimensions d = *tiny_decoder().dimensions;
  d.kv_heads = d.heads;
  return d;
}

TEST(Activations, OfADecoderGrowBeyondTheChunkByWhoSomeTokensLookAt) {
  const Dimensions d = unshared();
  EXPECT_EQ(inference_activation_bytes(d, request(100'000, 1)),
            inference_activation_bytes(d, request(2048, 1)) + 2 * 512 * 100'000);
  EXPECT_LT(inference_activation_bytes(d, request(1024, 1)),
            inference_activation_bytes(d, request(2048, 1)));
}

TEST(Activations, HeadsThatShareKeysCopyThoseOfEarlierParts) {
  const Dimensions d = *tiny_decoder().dimensions;  // 4 heads of 2, attention takes the most
  EXPECT_EQ(inference_activation_bytes(d, request(2048 + 1000, 1)),
            inference_activation_bytes(d, request(2048, 1)) + 2 * 1000 * 4 * 2 * 2 +
                2 * 512 * (2048 + 1000));
  // Four of them at once, however many there are.
  EXPECT_EQ(inference_activation_bytes(d, request(2048 + 1000, 16)),
            inference_activation_bytes(d, request(2048, 16)) + 2 * 1000 * 4 * 2 * 2 * 4 +
                kPairs * 4 * 2048 * 1000);
  EXPECT_EQ(inference_activation_bytes(d, request(1024, 16)) - kPairs * 8 * 1024 * 1024,
            inference_activation_bytes(d, request(512, 16)) - kPairs * 16 * 512 * 512);
}

TEST(Activations, OfAWindowHaveWhoLooksAtWhom) {
  const Dimensions all = unshared();
  Dimensions some = all;
  some.sliding_window = 1000;
  some.windowed_layers = 1;
  EXPECT_EQ(inference_activation_bytes(some, request(1000, 1)),
            inference_activation_bytes(all, request(1000, 1)));
  EXPECT_EQ(inference_activation_bytes(some, request(1001, 1)),
            inference_activation_bytes(all, request(1001, 1)) + (2 + 2) * 1001 * 1001);
}

TEST(Activations, OfABatchDoNotGrowBeyondWhatItReadsAtOnce) {
  const Dimensions d = unshared();
  const Bytes of_8 = inference_activation_bytes(d, request(1024, 8));
  EXPECT_LT(inference_activation_bytes(d, request(1024, 4)), of_8);
  EXPECT_EQ(inference_activation_bytes(d, request(1024, 64)), of_8);
  EXPECT_EQ(inference_activation_bytes(d, request(2, 8192 * 3)),
            3 * inference_activation_bytes(d, request(2, 8192)) - 2 * kPairs * 4096 * 2 * 2)
      << "a token of each";
}

TEST(RecordedPass, HoldsATokenOfEachAndTheContextInParts) {
  const Description d = tiny_decoder();  // 4 heads of 2, 100 words
  const Bytes token = 2 * (4 * 8 + 2 * 2 + (5 * 4 + 3 * 2) * 2) + 100 * (2 + 4);
  EXPECT_EQ(recorded_pass_bytes(d, request(64, 1)), token + 4 * 4 * (64 + 2));
  EXPECT_EQ(recorded_pass_bytes(d, request(65, 1)), token + 4 * 4 * 2 * (64 + 2));
  // Who looks at whom is for those with padding.
  EXPECT_EQ(recorded_pass_bytes(d, request(65, 5)),
            5 * (token + 4 * 4 * 2 * (64 + 2)) + kPairs * 5);
}

TEST(PromptPart, IsAsManyWholePromptsAsKeepAGpuBusy) {
  const auto part = [](std::int64_t batch, std::int64_t context, std::int64_t longest) {
    const PromptPart found = prompt_part(batch, context, longest);
    return std::pair(found.rows, found.tokens);
  };
  EXPECT_EQ(part(1, 4096, 4096), std::pair(1L, 2048L));
  EXPECT_EQ(part(1, 4096, 100), std::pair(20L, 100L)) << "as many tokens as one may have";
  EXPECT_EQ(part(2, 4096, 2048), std::pair(2L, 2048L));
  EXPECT_EQ(part(64, 4096, 4096), std::pair(4L, 2048L));
  EXPECT_EQ(part(48, 544, 512), std::pair(16L, 512L)) << "prompts of 512 in three parts";
  EXPECT_EQ(part(3, 32, 32), std::pair(3L, 32L));
  EXPECT_EQ(part(3, 32, 20), std::pair(4L, 20L));
  EXPECT_EQ(part(1'000'000, 1'000'000, 1), std::pair(8192L, 1L));
  for (std::int64_t longest = 1; longest < 5000; ++longest) {
    const PromptPart found = prompt_part(100, 5000, longest);
    EXPECT_LE(found.rows * found.tokens, 8192) << longest;
    EXPECT_GT((found.rows + 1) * found.tokens, 8192) << longest;
  }
}

TEST(Activations, CountTheBiasOfTheScores) {
  Dimensions d = *tiny_decoder().dimensions;
  const Bytes without = inference_activation_bytes(d, request(10, 1));
  d.score_bias = true;
  EXPECT_EQ(inference_activation_bytes(d, request(10, 1)), without + (2 * 2 * 4 + 24) * 10 * 10);
}

TEST(KvCache, AWindowedLayerKeepsItsWindow) {
  Dimensions d = *tiny_decoder().dimensions;
  d.sliding_window = 16;
  d.windowed_layers = 1;
  const InferenceRequest r = request(100, 1);
  EXPECT_EQ(kv_layer_bytes(d, r, true), 2u * 2 * 2 * 16 * 2);
  EXPECT_EQ(kv_layer_bytes(d, r, false), 2u * 2 * 2 * 100 * 2);
  EXPECT_EQ(kv_bytes(d, r), kv_layer_bytes(d, r, true) + kv_layer_bytes(d, r, false));
  EXPECT_EQ(kv_layer_bytes(d, request(10, 1), true), kv_layer_bytes(d, request(10, 1), false));
}

TEST(KvCache, ADecoderBesideAnEncoderKeepsItsInputToo) {
  Dimensions d = *tiny_decoder().dimensions;
  const Bytes alone = kv_bytes(d, request(10, 1));
  d.encoder_layers = 2;
  EXPECT_EQ(kv_bytes(d, request(10, 1)), 2 * alone);
}

TEST(KvCache, OfAKnownModelIsWhatPeopleCount) {
  Dimensions d;  // Llama 3.1 8B
  d.layers = 32;
  d.kv_heads = 8;
  d.head_size = 128;
  d.causal = true;
  EXPECT_EQ(kv_bytes(d, request(8192, 1)), 1 * kGiB);
}

TEST(WeightBytes, ConvertFloatsAndLeaveSmallTypesAndIntegers) {
  Description d;
  d.root = {"",
            "M",
            {{"a", Dtype::kF32, {10}},
             {"b", Dtype::kF16, {10}},
             {"c", Dtype::kF8E4M3, {10}},
             {"d", Dtype::kU8, {10}}},
            {{"mask", Dtype::kBool, {10}, true}},
            {}};
  EXPECT_EQ(weight_bytes(d, Dtype::kBF16), 20u + 20 + 10 + 10 + 10);
  EXPECT_EQ(weight_bytes(d, Dtype::kF32), 40u + 40 + 10 + 10 + 10);
}

TEST(InferenceTable, RefusesNumbersBelowOneAndBeyondMeasure) {
  test::expect_error(ErrorKind::kUsage, HasSubstr("at least 1"),
                     [] { inference_table(tiny_decoder(), request(0, 1)); });
  test::expect_error(ErrorKind::kUnsupported, HasSubstr("64 bits"), [] {
    inference_table(tiny_decoder(), request(std::int64_t{1} << 62, std::int64_t{1} << 62));
  });
}

}  // namespace
}  // namespace haul
