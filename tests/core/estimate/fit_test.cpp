#include "haul/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "haul/error.h"
#include "tests/core/estimate/tiny_model.h"
#include "tests/support/expect_error.h"

namespace haul {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::vector<TableEntry> kTable{
    {Tag::kWeights, 1000}, {Tag::kKv, 200}, {Tag::kActivations, 100}};

TEST(Verdict, FitsWhenEverythingDoes) {
  const Verdict v = judge(kTable, 0.1, 1300);
  EXPECT_EQ(v.fit, Fit::kFits);
  EXPECT_EQ(v.free, 0u);
  EXPECT_EQ(judge(kTable, 0.1, 1500).free, 200u);
}

TEST(Verdict, OffloadsWhatDoesNotFitBesideTwoSlots) {
  const Verdict v = judge(kTable, 0.1, 1299);
  EXPECT_EQ(v.fit, Fit::kFitsWithOffload);
  // 300 must stay, 200 are slots, so 799 of the weights stay and 201 go.
  EXPECT_EQ(v.offloaded, 201u);
  EXPECT_EQ(judge(kTable, 0.1, 500).offloaded, 1000u);
}

TEST(Verdict, TellsWhatIsMissingEvenWithOffload) {
  const Verdict v = judge(kTable, 0.1, 499);
  EXPECT_EQ(v.fit, Fit::kDoesNotFit);
  EXPECT_EQ(v.missing, 1u);
  EXPECT_EQ(v.needed, 1300u);
}

TEST(Verdict, SlotsAreNeverLargerThanWhatTheyStream) {
  EXPECT_EQ(judge(kTable, 0.9, 1299).fit, Fit::kDoesNotFit);
  EXPECT_EQ(judge(kTable, 0.9, 1299).missing, 1u);
}

TEST(Verdict, TrainingOffloadsOptimizerStateAndGradients) {
  const std::vector<TableEntry> table{{Tag::kWeights, 100},
                                      {Tag::kMasterWeights, 200},
                                      {Tag::kGradients, 200},
                                      {Tag::kOptimizer, 400},
                                      {Tag::kActivations, 50}};
  EXPECT_EQ(judge(table, 0.1, 230).offloaded, 900u);
  EXPECT_EQ(judge(table, 0.1, 229).missing, 1u);
}

TEST(LargestLayerShare, IsOfTheWholeModel) {
  const double share = largest_layer_share(test::tiny_decoder());
  EXPECT_DOUBLE_EQ(share, 3200.0 / (test::kTinyParameters * 4 + test::kTinyBuffer));
  EXPECT_EQ(largest_layer_share(Description{}), 0);
}

TEST(Gpus, AreFoundAsPeopleWriteThem) {
  for (const char* text : {"RTX 4090", "4090", "rtx-4090", "RTX4090 24GB", "409024gb"}) {
    ASSERT_NE(find_gpu(text), nullptr) << text;
    EXPECT_EQ(find_gpu(text)->name, "RTX 4090 24GB") << text;
  }
  EXPECT_EQ(find_gpu("h200")->memory, 141 * kGiB);
  EXPECT_EQ(find_gpu("A100 40GB")->memory, 40 * kGiB);
  EXPECT_EQ(find_gpu("24GB"), nullptr);
  EXPECT_EQ(find_gpu("GeForce 256"), nullptr);
  EXPECT_EQ(find_gpu(""), nullptr);
}

TEST(Gpus, ANameOfSeveralIsRefusedWithTheChoice) {
  try {
    find_gpu("A100");
    FAIL() << "no error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_THAT(error.hint(), AllOf(HasSubstr("A100 40GB"), HasSubstr("A100 80GB")));
  }
}

TEST(Gpus, StandInTheOrderOfTheirMemoryAndKeepMostOfIt) {
  Bytes last = 0;
  for (const Gpu& gpu : known_gpus()) {
    EXPECT_GE(gpu.memory, last) << gpu.name;
    EXPECT_LE(gpu.reserved * 8, gpu.memory) << gpu.name;
    last = gpu.memory;
  }
}

}  // namespace
}  // namespace haul
