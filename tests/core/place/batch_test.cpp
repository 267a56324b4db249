// What a step costs beside its weights: calls, the KV cache, and the prompts of a batch.

#include <algorithm>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/json.h"
#include "core/describe/describe.h"
#include "haul/plan.h"

namespace haul {
namespace {

constexpr std::int64_t kLayers = 32;
// A Llama of 8 billion.
constexpr const char* kLlama = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
  "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
  "max_position_embeddings": 8192, "tie_word_embeddings": false, "torch_dtype": "bfloat16"})";

Profile profile() {
  Profile profile;
  profile.gpu = {4e12, 5e10, 8e14, 0};
  profile.ram_bandwidth = 8e10;
  profile.cpu_operations = 1e12;
  profile.measured = true;
  return profile;
}

constexpr const char* kGpt2 = R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
  "n_embd": 1600, "n_layer": 48, "n_head": 25, "torch_dtype": "bfloat16"})";

Plan plan_of(const char* memory, std::int64_t context, std::int64_t batch, const Profile& profile,
             const char* config = kLlama) {
  const core::DescribeOptions stored{false, core::WeightDtype::kStored};
  const Description description =
      core::describe_config(core::parse_json(config, "config.json"), "config.json", stored);
  PlanRequest request;
  request.memory = parse_max_memory(memory);
  request.options.no_split = description.no_split;
  request.context = context;
  request.batch = batch;
  return make_plan(description, request, profile);
}

TEST(Step, ReadsTheKvCache) {
  constexpr double kKvOfAToken = 2.0 * 2 * kLayers * 8 * 128;  // bytes
  const Plan few = plan_of("0=40GB", 1000, 1, profile());
  const Plan many = plan_of("0=40GB", 5000, 1, profile());
  EXPECT_NEAR(many.token.seconds - few.token.seconds, 4000 * kKvOfAToken / 4e12, 1e-9);
}

TEST(Step, HasCallsThatTakeTimeHoweverSmall) {
  Profile slow = profile();
  slow.gpu.call = 1e-5;
  const double without = plan_of("0=40GB", 100, 1, profile()).token.seconds;
  // A layer has seven products and two norms; a norm and the head follow, and a table comes first.
  EXPECT_NEAR(plan_of("0=40GB", 100, 1, slow).token.seconds - without, (kLayers * 9 + 3) * 1e-5,
              1e-9);
}

TEST(Step, LooksAtEveryNumberOfEveryHead) {
  Profile slow = profile();
  slow.gpu.attended = 1e-12;
  for (const std::int64_t batch : {1, 3}) {
    const double more = plan_of("0=40GB", 1000, batch, slow).token.seconds -
                        plan_of("0=40GB", 1000, batch, profile()).token.seconds;
    EXPECT_NEAR(more, static_cast<double>(batch * 1000 * kLayers * 32 * 128) * 1e-12, 1e-9);
  }
}

TEST(Step, TakesLongerForWeightsThatLieByInput) {
  Profile slow = profile();
  slow.gpu.by_input = slow.cpu_by_input = 1e-5;
  for (const char* memory : {"0=40GB", "cpu=40GB"}) {
    EXPECT_EQ(plan_of(memory, 100, 1, slow).token.seconds,
              plan_of(memory, 100, 1, profile()).token.seconds);
    const double more = plan_of(memory, 100, 1, slow, kGpt2).token.seconds -
                        plan_of(memory, 100, 1, profile(), kGpt2).token.seconds;
    EXPECT_NEAR(more, 48 * 4 * 1e-5, 1e-9) << memory;
  }
}

// As GPT-2's half did, which the CPU was to multiply faster than the link brings it.
TEST(Step, LeavesToTheLinkWhatTheCpuMultipliesSlowly) {
  const auto copied = [](const Plan& plan) {
    Bytes bytes = 0;
    for (const PlanStep& step : plan.steps) {
      if (step.runs_on != step.lies) bytes += step.weights;
    }
    return bytes;
  };
  Profile slow = profile();
  slow.cpu_by_input = 1e-3;
  EXPECT_GT(copied(plan_of("0=2GB,cpu=40GB", 96, 1, slow, kGpt2)),
            copied(plan_of("0=2GB,cpu=40GB", 96, 1, profile(), kGpt2)));
}

// What is copied from RAM, 8 bytes for 4096, is found by tables on the GPU.
TEST(Tables, AreAsLargeAsWhatLiesInRamMakesThem) {
  const Bytes driver = profile().of_gpu(0).context;
  int some = 0;
  for (int gpu = 2; gpu < 17; ++gpu) {
    const std::string memory = "0=" + std::to_string(gpu) + "GB,cpu=40GB";
    const Plan plan = plan_of(memory.c_str(), 1000, 1, profile());
    ASSERT_TRUE(plan.fits) << gpu;
    Bytes copied = 0;
    for (const PlanStep& step : plan.steps) {
      if (step.lies == kCpuDevice && step.runs_on.is_accelerator()) copied += step.weights;
    }
    EXPECT_EQ(plan.devices[0].context, driver + copied / 512) << gpu;
    EXPECT_LE(plan.devices[0].used(), *plan.devices[0].budget) << gpu;
    some += copied > 0;
  }
  EXPECT_GE(some, 5);
  EXPECT_EQ(plan_of("0=8GB", 1000, 1, profile()).devices[0].context, driver) << "none from disk";
}

// Passes over many sequences hold much themselves; where not all lies on the GPU none is recorded.
TEST(Recorded, MemoryIsForWeightsWhereThereIsTooLittleForIt) {
  constexpr std::int64_t kBatch = 256;
  const auto with = [](Bytes gpu, const char* others) {
    const std::string memory = "0=" + std::to_string(gpu) + others;
    return plan_of(memory.c_str(), 1000, kBatch, profile(), kGpt2);
  };
  const PlanDevice all = with(Bytes{1} << 40, ",cpu=40GB").devices[0];
  const Bytes recorded = all.context - profile().of_gpu(0).context;
  ASSERT_GT(recorded, 150 * kMiB);
  for (int i = 0; i < 10; ++i) {
    const Bytes budget = all.used() - 1 - recorded * static_cast<Bytes>(i) / 10;
    for (const char* others : {",cpu=40GB", ""}) {
      const Plan plan = with(budget, others);
      ASSERT_TRUE(plan.fits) << i << others;
      const PlanDevice& device = plan.devices[0];
      EXPECT_LE(device.used(), budget) << i << others;
      EXPECT_LT(device.weights, all.weights) << i << others;
      EXPECT_GT(device.weights, all.weights * 9 / 10) << i << others;
    }
  }
}

// Short answers of such models are recorded, however long the context.
TEST(Recorded, PassesOfModelsWithWindowsCount) {
  constexpr const char* kMistral = R"({"architectures": ["MistralForCausalLM"],
    "model_type": "mistral", "hidden_size": 1024, "intermediate_size": 2816,
    "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 4,
    "vocab_size": 3000, "sliding_window": 512, "torch_dtype": "bfloat16"})";
  const Plan plan = plan_of("0=40GB", 1000, 1, profile(), kMistral);
  const GpuProfile gpu = profile().of_gpu(0);
  EXPECT_GT(plan.devices[0].context, gpu.context + gpu.recorded);
}

TEST(Tables, AreInWhatAPlanSaysIsMissing) {
  Profile unrecorded = profile();
  unrecorded.gpu.recorded = 0;
  const Plan plan = plan_of("0=1GB,cpu=12GB,disk=0", 8192, 1, unrecorded);
  ASSERT_FALSE(plan.fits);
  ASSERT_FALSE(plan.shortfall.empty());
  ASSERT_EQ(plan.shortfall[0].device, gpu(0));
  const Bytes needed = 1'000'000'000 + plan.shortfall[0].bytes();
  const auto fits = [&](Bytes bytes) {
    const std::string memory = "0=" + std::to_string(bytes) + ",cpu=12GB,disk=0";
    return plan_of(memory.c_str(), 8192, 1, unrecorded).fits;
  };
  EXPECT_TRUE(fits(needed));
  EXPECT_FALSE(fits(needed - 1));
}

// Its CPU would take minutes for them.
TEST(Batch, WithPromptsIsComputedByTheGpu) {
  for (const std::int64_t batch : {8, 16, 32}) {
    const Plan plan = plan_of("0=5300MB,cpu=32GB", 544, batch, profile());
    ASSERT_TRUE(plan.fits) << batch;
    Bytes copied = 0;
    for (const PlanStep& step : plan.steps) {
      if (step.runs_on == kCpuDevice) {
        EXPECT_EQ(step.last, "model.embed_tokens") << batch;
      }
      if (step.runs_on != step.lies) copied += step.weights;
    }
    EXPECT_LT(plan.token.seconds, 1.05 * static_cast<double>(copied) / 5e10) << batch;
  }
}

// The head is the largest piece: where it stays, slots are small, and all caches find room.
TEST(Batch, KeepsRoomForTheCachesOfUnitsThatAreCopied) {
  const Plan plan = plan_of("0=5300MB,cpu=32GB", 544, 32, profile());
  EXPECT_THAT(plan.map, testing::Contains(testing::Pair("lm_head", gpu(0))));
  EXPECT_GT(plan.tokens_per_second(), 110);
}

// One who waits for the next word: prompts do not count.
TEST(Batch, OfAFewIsPlannedByTheToken) {
  const Plan four = plan_of("0=5300MB,cpu=32GB", 544, 4, profile());
  const Plan one = plan_of("0=5300MB,cpu=32GB", 544, 1, profile());
  EXPECT_NEAR(four.token.seconds, one.token.seconds, 0.05 * one.token.seconds);
}

constexpr Bytes kKvOfASequence = 544UL * 2 * 2 * kLayers * 8 * 128;

const PlanDevice& on(const Plan& plan, Device device) {
  for (const PlanDevice& item : plan.devices) {
    if (item.device == device) return item;
  }
  throw std::runtime_error("a device that the plan does not have");
}

// All layers' are 13.7 GB, more than the GPU has; the CPU would take minutes for their prompts.
TEST(KvInRam, LetsAGpuComputeWhatItHasNoRoomToRemember) {
  const Plan plan = plan_of("0=6400MB,cpu=32GB", 544, 192, profile());
  ASSERT_TRUE(plan.fits);
  EXPECT_TRUE(plan.kv_in_ram);
  EXPECT_EQ(on(plan, kCpuDevice).kv, 192 * kKvOfASequence);
  EXPECT_EQ(on(plan, gpu(0)).kv, 2 * 192 * kKvOfASequence / kLayers) << "this layer and the next";
  Bytes copied = 192 * kKvOfASequence;
  for (const PlanStep& step : plan.steps) {
    EXPECT_EQ(step.runs_on, gpu(0));
    if (step.runs_on != step.lies) copied += step.weights;
  }
  EXPECT_NEAR(plan.token.seconds, static_cast<double>(copied) / 5e10, 0.01 * plan.token.seconds);
  for (const PlanDevice& device : plan.devices) EXPECT_LE(device.used(), device.budget);
  EXPECT_EQ(plan.token.limit, "link of GPU 0");
  EXPECT_LE(plan.best_possible, plan.token.seconds);
  EXPECT_GE(plan.gap(), 0);
  EXPECT_THAT(explain(plan, profile()), testing::Contains(testing::HasSubstr("Keys and values")));
  EXPECT_EQ(read_plan(write_plan(plan), "plan.json"), plan);
  // More sequences for each time that the weights come.
  EXPECT_GT(plan.tokens_per_second(),
            1.5 * plan_of("0=6400MB,cpu=32GB", 544, 32, profile()).tokens_per_second());
}

TEST(KvInRam, IsForWhatDoesNotFitOtherwise) {
  EXPECT_FALSE(plan_of("0=6400MB,cpu=32GB", 544, 32, profile()).kv_in_ram);
  EXPECT_FALSE(plan_of("0=80GB,cpu=32GB", 544, 192, profile()).kv_in_ram);
  EXPECT_FALSE(plan_of("cpu=64GB", 544, 192, profile()).kv_in_ram);
  EXPECT_FALSE(plan_of("0=6400MB,1=6400MB,cpu=32GB", 544, 192, profile()).kv_in_ram);
  // The keys and values alone are more than the RAM.
  EXPECT_FALSE(plan_of("0=6400MB,cpu=12GB", 544, 192, profile()).kv_in_ram);
}

// Two parts of each prompt; the second looks at half of it, which comes once for all sequences.
TEST(KvInRam, ComesForLaterPartsOfPromptsAlone) {
  const Plan plan = plan_of("0=12GB,cpu=160GB", 4096, 192, profile());
  ASSERT_TRUE(plan.kv_in_ram);
  Bytes weights = 0;
  for (const PlanStep& step : plan.steps) weights += step.lies == step.runs_on ? 0 : step.weights;
  constexpr double kPasses = 2 * 192 / 4;
  const double link =
      (kPasses * static_cast<double>(weights) + static_cast<double>(on(plan, kCpuDevice).kv)) /
      5e10;
  ASSERT_TRUE(plan.first_token);
  EXPECT_NEAR(plan.first_token->seconds, link, 0.1 * link);
}

// A layer's keys are numbered in 32 bits on the way.
TEST(KvInRam, IsNotForMoreThanKernelsCount) {
  EXPECT_TRUE(plan_of("0=100GB,cpu=2TB", 4096, 500, profile()).kv_in_ram);
  EXPECT_FALSE(plan_of("0=100GB,cpu=2TB", 4096, 520, profile()).kv_in_ram);
}

// What is said to be missing counts on it, too.
TEST(KvInRam, IsPartOfWhatWouldMakeItFit) {
  const Plan plan = plan_of("0=3GB,cpu=8GB", 544, 192, profile());
  ASSERT_FALSE(plan.fits);
  const auto more = std::find_if(plan.shortfall.begin(), plan.shortfall.end(),
                                 [](const Budget& item) { return item.device == kCpuDevice; });
  ASSERT_NE(more, plan.shortfall.end());
  const auto with = [&](Bytes bytes) {
    return plan_of(("0=3GB,cpu=" + std::to_string(bytes)).c_str(), 544, 192, profile());
  };
  const Bytes enough = 8'000'000'000 + more->bytes();
  EXPECT_TRUE(with(enough).fits);
  EXPECT_FALSE(with(enough - 1).fits);
}

}  // namespace
}  // namespace haul
