// The CPU's share of matrices that lie in RAM and are used on a GPU.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/json.h"
#include "core/describe/describe.h"
#include "haul/error.h"
#include "haul/plan.h"

namespace haul {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::ThrowsMessage;

// 2 GB of weights.
constexpr const char* kLlama = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 14,
  "num_attention_heads": 16, "vocab_size": 32000, "max_position_embeddings": 4096,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16"})";
constexpr const char* kGpt2 = R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
  "n_embd": 1600, "n_layer": 48, "n_head": 25, "torch_dtype": "bfloat16"})";

struct Case {
  const char* config = kLlama;
  double help = 4e10;
  double help_call = 0;
  double help_link = 0;
  std::int64_t batch = 1;
  Dtype dtype = Dtype::kBF16;
  bool context = true;
  double operations = 1e12;
  bool measured = true;
  const char* memory = "0=2GB,cpu=64GB";
};

Plan plan_of(const Case& item) {
  const core::DescribeOptions stored{false, core::WeightDtype::kStored};
  const Description description =
      core::describe_config(core::parse_json(item.config, "config.json"), "config.json", stored);
  Profile profile;
  profile.gpu = {3e12, 4e10, 5e14};
  profile.ram_bandwidth = 6e10;
  profile.measured = item.measured;
  profile.cpu_operations = item.operations;
  profile.help_bandwidth = item.help;
  profile.help_call = item.help_call;
  profile.help_link = item.help_link;
  PlanRequest request;
  request.memory = parse_max_memory(item.memory);
  request.options.no_split = description.no_split;
  if (item.context) request.context = 512;
  request.batch = item.batch;
  request.dtype = item.dtype;
  return make_plan(description, request, profile);
}

TEST(Help, EndsWhenTheLinkDoes) {
  const Plan plan = plan_of({});
  // A little less than equal speeds give: it waits while the GPU is at work with what lies there.
  EXPECT_NEAR(plan.cpu_share, 0.49, 0.005);
  EXPECT_NEAR(plan_of({.help = 6e10}).cpu_share, 0.588, 0.005);
  // Nearly all of the weights are in linear layers.
  Bytes copied = 0;
  for (const PlanStep& step : plan.steps) {
    if (step.lies == kCpuDevice && step.runs_on == gpu(0)) copied += step.weights;
  }
  ASSERT_GT(copied, 0U);
  const double alone = static_cast<double>(copied) / 4e10;
  EXPECT_LT(plan.token.seconds, 0.6 * alone);
  EXPECT_GT(plan.token.seconds, 0.5 * alone);
  EXPECT_THAT(explain(plan, {}), Contains(HasSubstr("the CPU multiplies 49 % of the rows there, "
                                                    "with up to 25 tokens at once,")));
}

// What the CPU multiplies and its waiting take as long as what the link brings.
TEST(Help, IsLessWhereEachCallKeepsItWaiting) {
  const double call = 5e-5;
  const Plan plan = plan_of({.help_call = call});
  EXPECT_LT(plan.cpu_share, plan_of({}).cpu_share - 0.05);
  EXPECT_GT(plan.token.seconds, plan_of({}).token.seconds);
  double copied = 0;
  double layers = 0;
  for (const PlanStep& step : plan.steps) {
    if (step.lies != kCpuDevice || step.runs_on != gpu(0)) continue;
    copied += static_cast<double>(step.weights);
    layers += static_cast<double>(step.count);
  }
  ASSERT_GT(copied, 0);
  const double calls = layers * 9;  // four of attention, three behind it, two norms
  const double resident = plan.token.seconds - (1 - plan.cpu_share) * copied / 4e10;
  EXPECT_NEAR(resident, 0, 0.01 * plan.token.seconds);
  EXPECT_NEAR(plan.cpu_share * copied / 4e10 + calls * call, plan.token.seconds,
              0.1 * plan.token.seconds);
}

TEST(Help, IsLeftOutWhereTheLinkAloneIsFaster) {
  const Plan alone = plan_of({.help = 0});
  EXPECT_EQ(alone.cpu_share, 0);
  // Of so little in each call that waiting takes longer than bringing all of it.
  const Plan waiting = plan_of({.help_call = 1e-2});
  EXPECT_EQ(waiting.cpu_share, 0);
  EXPECT_EQ(waiting.token.seconds, alone.token.seconds);
  // Also where there is room for one slot alone.
  for (const char* memory : {"0=0.7GB,cpu=64GB", "0=0.75GB,cpu=64GB", "0=0.8GB,cpu=64GB"}) {
    const Plan narrow = plan_of({.help = 0, .memory = memory});
    EXPECT_EQ(plan_of({.help_call = 1e-2, .memory = memory}).token.seconds, narrow.token.seconds)
        << memory;
  }
  // Beside the CPU this link gives less than the CPU makes up for.
  const Plan crowded = plan_of({.help = 1e9, .help_link = 1e10});
  EXPECT_EQ(crowded.cpu_share, 0);
  EXPECT_EQ(crowded.token.seconds, alone.token.seconds);
  EXPECT_EQ(crowded.load, alone.load);
}

TEST(Help, CountsWithWhatALinkGivesBesideIt) {
  const Plan plan = plan_of({.help_link = 3e10});
  EXPECT_NEAR(plan.cpu_share, 4.0 / 7, 0.02);
  EXPECT_GT(plan.token.seconds, 1.08 * plan_of({}).token.seconds);
  EXPECT_EQ(plan_of({.help_link = 9e10}).token.seconds, plan_of({}).token.seconds);
}

TEST(Help, IsForAFewRowsOfWhatTheKernelsKnow) {
  EXPECT_GT(plan_of({.batch = kMostHelpedRows}).cpu_share, 0);
  EXPECT_EQ(plan_of({.batch = kMostHelpedRows + 1}).cpu_share, 0);
  EXPECT_GT(plan_of({.batch = kFewRows, .measured = false}).cpu_share, 0);
  EXPECT_EQ(plan_of({.batch = kFewRows + 1, .measured = false}).cpu_share, 0);
  EXPECT_EQ(plan_of({.dtype = Dtype::kF16}).cpu_share, plan_of({}).cpu_share);
  EXPECT_EQ(plan_of({.dtype = Dtype::kF64}).cpu_share, 0);
  EXPECT_EQ(plan_of({.context = false}).cpu_share, 0) << "who knows what will run it";
  // Its matrices lie the other way round: a share is planned, and counts for nothing.
  const Plan helped = plan_of({.config = kGpt2});
  const Plan alone = plan_of({.config = kGpt2, .help = 1});
  EXPECT_NEAR(helped.token.seconds, alone.token.seconds, 0.02 * alone.token.seconds);
}

// Half of 1.28 TFLOP/s are 40 GB/s of BF16 for 16 rows, as fast as they come from RAM, and 20
// for 32.
TEST(Help, IsLessOfManyRowsForACpuThatCountsSlowly) {
  const auto share = [](std::int64_t rows) {
    return plan_of({.batch = rows, .operations = 1.28e12}).cpu_share;
  };
  EXPECT_NEAR(share(16), share(1), 0.01);
  EXPECT_NEAR(share(32), 1.0 / 3, 0.01);
  // With half of each matrix, it is done with 32 rows when the link has brought all.
  EXPECT_EQ(plan_of({.operations = 1.3e12}).helped_rows, 32);
  EXPECT_EQ(plan_of({.operations = 6.4e11}).helped_rows, 16);
  EXPECT_EQ(plan_of({.operations = 1e10}).helped_rows, kFewRows);
  EXPECT_EQ(plan_of({.operations = 1e13}).helped_rows, kMostHelpedRows);
  EXPECT_EQ(plan_of({.measured = false}).helped_rows, kFewRows);
}

TEST(Help, IsKeptWithThePlan) {
  const Plan plan = plan_of({});
  EXPECT_EQ(read_plan(write_plan(plan), "plan.json").cpu_share, plan.cpu_share);
  EXPECT_EQ(read_plan(write_plan(plan), "plan.json").helped_rows, plan.helped_rows);
  EXPECT_EQ(read_plan(write_plan(plan), "plan.json"), plan);
  Plan wrong = plan;
  wrong.helped_rows = kMostHelpedRows + 1;
  EXPECT_THAT(
      [&] { read_plan(write_plan(wrong), "plan.json"); },
      ThrowsMessage<Error>(HasSubstr("plan.json: plan: \"helped_rows\" is 33, more than 32")));
}

// The slots are full long before the CPU's units have been computed.
TEST(Prediction, CopiesDoNotHideBehindUnitsOfTheCpu) {
  const Plan plan = plan_of({.help = 1});
  double link = 0;
  double cpu = 0;
  for (const PlanStep& step : plan.steps) {
    if (step.lies == kCpuDevice && step.runs_on == gpu(0)) {
      link += static_cast<double>(step.weights) / 4e10;
    }
    if (step.runs_on == kCpuDevice && step.first != "model.embed_tokens") {
      cpu += static_cast<double>(step.weights) / 6e10;
    }
  }
  EXPECT_GE(plan.token.seconds, 0.99 * (link + cpu));
}

}  // namespace
}  // namespace haul
