// Tables of embeddings where memory is short: the CPU looks rows up on disk.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/json.h"
#include "core/describe/describe.h"
#include "core/place/place.h"
#include "haul/plan.h"

namespace haul {
namespace {

using testing::Contains;
using testing::HasSubstr;

// 2 GB of weights, of which the table is 0.13 and the head as much.
core::Json llama(bool tied) {
  return core::parse_json(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 14,
      "num_attention_heads": 16, "vocab_size": 32000, "max_position_embeddings": 4096,
      "torch_dtype": "bfloat16", "tie_word_embeddings": )" +
                              std::string(tied ? "true}" : "false}"),
                          "config.json");
}

Plan plan_of(const char* memory, bool tied = false) {
  const Description description =
      core::describe_config(llama(tied), "config.json", {false, core::WeightDtype::kStored});
  PlanRequest request;
  request.memory = parse_max_memory(memory);
  request.options.no_split = description.no_split;
  request.context = 64;
  request.margins = true;
  return make_plan(description, request, Profile{});
}

const PlanStep& table_of(const Plan& plan) {
  return plan.steps.front();
}

TEST(Lookup, LeavesATableOnDiskThatWouldTakeMemoryFromBlocks) {
  for (const char* const memory : {"cpu=1GB", "0=1.2GB,cpu=500MB"}) {
    const Plan plan = plan_of(memory);
    ASSERT_TRUE(plan.fits) << memory;
    const PlanStep& table = table_of(plan);
    EXPECT_EQ(table.first, "model.embed_tokens") << memory;
    EXPECT_EQ(table.count, 1) << memory;
    EXPECT_EQ(table.lies, kDiskDevice) << memory;
    EXPECT_EQ(table.runs_on, kCpuDevice) << memory;
    EXPECT_TRUE(table.looked_up) << memory;
    EXPECT_THAT(explain(plan, Profile{}), Contains(HasSubstr("reads the rows that it needs")));
  }
}

TEST(Lookup, IsNotForWhatFitsIntoMemory) {
  for (const char* const memory : {"cpu=4GB", "0=1.2GB,cpu=4GB", "0=8GB,cpu=4GB"}) {
    const Plan plan = plan_of(memory);
    for (const PlanStep& step : plan.steps) {
      EXPECT_NE(step.lies, kDiskDevice) << memory;
      EXPECT_FALSE(step.looked_up) << memory;
    }
  }
}

TEST(Lookup, IsNotForATableThatIsTheHead) {
  for (const PlanStep& step : plan_of("cpu=1GB", true).steps) EXPECT_FALSE(step.looked_up);
}

TEST(Lookup, IsKeptWithThePlan) {
  const Plan plan = plan_of("cpu=1GB");
  ASSERT_TRUE(table_of(plan).looked_up);
  EXPECT_EQ(read_plan(write_plan(plan), "plan.json"), plan);
}

// A table of the size of ten blocks, beside thirty of them.
TEST(Lookup, LeavesRoomForBlocksInLargeWorlds) {
  core::World world;
  for (std::uint32_t u = 0; u < 31; ++u) {
    const core::Size size = u == 0 ? 1000 : 100;
    world.units.push_back({size, u == 0 ? 1 : size, size, 0, 0});
    world.order.push_back(u);
  }
  world.executors = {{gpu(0), 1000, true, 0, 1e5, 1e6, 4e3}, {kCpuDevice, 1500, true, 0, 1e4, 1e4}};
  world.ram = 1500;
  world.disk_bandwidth = 100;
  const double whole = core::place(world, MapMode::kAuto)->timing.seconds;
  world.units.front().rows = 2;
  const auto placed = core::place(world, MapMode::kAuto);
  ASSERT_TRUE(placed.has_value());
  EXPECT_EQ(placed->choices.front(), (core::Choice{1, core::Store::kDisk}));
  // Of 3000 bytes in blocks memory holds 2500 less two slots, and held 1500 less two slots.
  EXPECT_GT(whole, 14.9);
  EXPECT_LT(placed->timing.seconds, 7.1);
  EXPECT_GE(placed->timing.seconds, placed->bound * (1 - 1e-9));
}

}  // namespace
}  // namespace haul
