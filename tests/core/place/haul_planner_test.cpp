// haul's planner on module trees: the cases where it does better than Accelerate's, and random
// trees against what every plan must keep.

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/json.h"
#include "core/describe/describe.h"
#include "core/place/model_world.h"
#include "core/place/workload.h"
#include "haul/estimate.h"
#include "haul/plan.h"
#include "tests/support/brute_force.h"
#include "tests/support/trees.h"

namespace haul {
namespace {

using testing::IsEmpty;

PlanRequest ask(const Description& description, const std::string& memory,
                MapMode mode = MapMode::kAuto, Planner planner = Planner::kHaul) {
  PlanRequest request;
  request.planner = planner;
  request.mode = mode;
  request.memory = parse_max_memory(memory);
  request.options.no_split = description.no_split;
  return request;
}

Plan plan_of(const Description& description, const std::string& memory,
             MapMode mode = MapMode::kAuto, Planner planner = Planner::kHaul) {
  return make_plan(description, ask(description, memory, mode, planner), Profile{});
}

Bytes weights_on(const Plan& plan, Device device) {
  for (const PlanDevice& item : plan.devices) {
    if (item.device == device) return item.weights;
  }
  return 0;
}

Bytes fullest_gpu(const Plan& plan) {
  Bytes fullest = 0;
  for (const PlanDevice& item : plan.devices) {
    if (item.device.is_accelerator()) fullest = std::max(fullest, item.weights);
  }
  return fullest;
}

// What every plan that fits keeps: budgets, coverage, ties.
void expect_sound(const Description& description, const Plan& plan) {
  ASSERT_TRUE(plan.fits);
  for (const PlanDevice& device : plan.devices) {
    if (device.budget) {
      ASSERT_LE(device.used(), *device.budget) << to_string(device.device);
    }
  }
  const DeviceMapCheck check = check_device_map(description, plan.map);
  ASSERT_THAT(check.uncovered, IsEmpty());
  ASSERT_THAT(check.split_ties, IsEmpty());
}

TEST(HaulPlanner, RespectsTheDisksBudgetWhereThePeerIgnoresIt) {
  const Plan plan = plan_of(test::tree_m(), "0=200,disk=10,cpu=150");
  expect_sound(test::tree_m(), plan);
  EXPECT_EQ(weights_on(plan, kDiskDevice), 0U);
  EXPECT_GT(weights_on(plan, gpu(0)), 64U) << "more than the peer's single module";
}

TEST(HaulPlanner, FillsGpuAndRamWhereThePeerPutsAllOnDisk) {
  for (const bool tied : {false, true}) {
    const Description g = test::tree_g(tied);
    const Plan plan = plan_of(g, "0=6000,cpu=6000");
    const Plan peer = plan_of(g, "0=6000,cpu=6000", MapMode::kSequential, Planner::kAccelerate);
    expect_sound(g, plan);
    EXPECT_LT(weights_on(plan, kDiskDevice), weights_on(peer, kDiskDevice));
    EXPECT_LT(plan.token.seconds, peer.token.seconds) << "a pass is faster";
  }
}

TEST(HaulPlanner, BalancedMeansThatTheFullestGpuIsAsEmptyAsCanBe) {
  Description mm = test::tree_mm();
  mm.no_split = {"M"};
  const Plan three = plan_of(mm, "0=1000,1=1000,2=1000", MapMode::kBalanced);
  EXPECT_EQ(fullest_gpu(three), 236U) << "one of three on each";
  const Plan four = plan_of(test::tree_n(), "0=10000,1=10000,2=10000,3=10000", MapMode::kBalanced);
  EXPECT_EQ(fullest_gpu(four), 924U) << "a block on each, and the head beside one";
}

TEST(HaulPlanner, LowZeroWorksWithGapsAndEmptyDevices) {
  const Plan gap = plan_of(test::tree_m(), "0=300,3=300", MapMode::kBalancedLow0);
  expect_sound(test::tree_m(), gap);
  EXPECT_EQ(weights_on(gap, gpu(0)), 0U);
  EXPECT_EQ(weights_on(gap, gpu(3)), 236U);
  const Plan empty = plan_of(test::tree_m(), "0=300,1=0,2=300", MapMode::kBalancedLow0);
  expect_sound(test::tree_m(), empty);
  EXPECT_EQ(weights_on(empty, gpu(0)), 0U);
  EXPECT_EQ(weights_on(empty, gpu(2)), 236U);
}

TEST(HaulPlanner, LowZeroUsesTheFirstGpuBeforeTheDisk) {
  const Plan plan = plan_of(test::tree_n(), "0=10000,1=1000,2=1000,3=1000", MapMode::kBalancedLow0);
  expect_sound(test::tree_n(), plan);
  EXPECT_EQ(weights_on(plan, kDiskDevice), 0U);
  EXPECT_EQ(weights_on(plan, gpu(0)), 880U) << "what the other three cannot hold";
}

TEST(HaulPlanner, PlansTiedModulesWithNumericNames) {
  std::vector<ModuleSpec> layers;
  for (int i = 0; i < 12; ++i) layers.push_back(test::linear(std::to_string(i), 10, 10));
  const Description d =
      test::describe(test::container("", "List", layers), {{"5.weight", "11.weight"}});
  const Plan plan = plan_of(d, "0=2000,1=10000");
  expect_sound(d, plan);
  EXPECT_EQ(weights_on(plan, kDiskDevice), 0U);
}

TEST(HaulPlanner, CountsATiedPairOnce) {
  const Description pair = test::describe(
      test::container("", "Pair", {test::linear("a", 10, 10), test::linear("b", 10, 10)}),
      {{"a.weight", "b.weight"}});
  EXPECT_EQ(plan_of(pair, "0=480").map, (DeviceMap{{"", gpu(0)}}));
  EXPECT_EQ(weights_on(plan_of(pair, "0=479"), gpu(0)), 0U);
}

TEST(HaulPlanner, SequentialFillsInOrder) {
  const Plan plan = plan_of(test::tree_n(), "0=2000,1=1000,2=9000", MapMode::kSequential);
  expect_sound(test::tree_n(), plan);
  EXPECT_EQ(plan.map, (DeviceMap{{"blocks.0", gpu(0)},
                                 {"blocks.1", gpu(0)},
                                 {"blocks.2", gpu(1)},
                                 {"blocks.3", gpu(2)},
                                 {"out", gpu(0)}}))
      << "the small head goes back to the first GPU";
}

TEST(HaulPlanner, SplitsABlockThatNoDeviceCanHold) {
  const Description d = test::describe(
      test::container("", "Model",
                      {test::container("block", "Block",
                                       {test::linear("a", 10, 10), test::linear("b", 10, 10)})}),
      {}, {"Block"});
  const Plan whole = plan_of(d, "0=880,1=500,disk=0");
  EXPECT_EQ(whole.map, (DeviceMap{{"block", gpu(0)}}));
  const Plan split = plan_of(d, "0=500,1=500,disk=0");
  expect_sound(d, split);
  EXPECT_EQ(split.map, (DeviceMap{{"block.a", gpu(0)}, {"block.b", gpu(1)}}));
}

TEST(HaulPlanner, WithoutAnyBudgetEverythingIsReadFromDisk) {
  EXPECT_EQ(plan_of(test::tree_m(), "").map, (DeviceMap{{"", kDiskDevice}}));
}

TEST(HaulPlanner, SaysWhatIsShort) {
  const Plan plan = plan_of(test::tree_m(), "0=100,1=110,disk=0");
  EXPECT_FALSE(plan.fits);
  EXPECT_THAT(plan.map, IsEmpty());
  ASSERT_EQ(plan.shortfall.size(), 3U);
  EXPECT_EQ(plan.shortfall[0], budget(gpu(0), 36)) << "136 and 100";
  EXPECT_EQ(plan.shortfall[1], budget(gpu(1), 26)) << "64 and 172 would need more";
  EXPECT_THAT(plan.changes, testing::Contains(testing::HasSubstr("more for device 0")));
  EXPECT_THAT(plan.changes, testing::Contains(testing::HasSubstr("--dtype")));
  EXPECT_THAT(plan.changes, testing::Contains(testing::HasSubstr("of RAM")));
  EXPECT_TRUE(plan_of(test::tree_m(), "0=136,1=110,disk=0").fits);
  EXPECT_FALSE(plan_of(test::tree_m(), "0=135,1=110,disk=0").fits);
}

// A causal language model with 6 layers and known dimensions.
Description with_dimensions() {
  Description g = test::tree_g(false);
  Dimensions dimensions;
  dimensions.layers = 6;
  dimensions.hidden = 8;
  dimensions.heads = 2;
  dimensions.kv_heads = 2;
  dimensions.head_size = 4;
  dimensions.intermediate = 32;
  dimensions.vocabulary = 100;
  dimensions.max_positions = 100'000;
  dimensions.causal = true;
  g.dimensions = dimensions;
  return g;
}

Bytes of_a_pass(const Description& g, const PlanRequest& request) {
  InferenceRequest pass;
  pass.dtype = request.dtype;
  pass.context = *request.context;
  return recorded_pass_bytes(g, pass);
}

TEST(HaulPlanner, CountsCacheActivationsAndTheDriver) {
  const Description g = with_dimensions();
  PlanRequest request = ask(g, "0=2GiB,cpu=1GiB");
  request.context = 10'000;
  request.dtype = Dtype::kF32;
  const Plan plan = make_plan(g, request, Profile{});
  expect_sound(g, plan);
  EXPECT_EQ(plan.devices[0].context,
            Profile{}.gpu.context + Profile{}.gpu.recorded + of_a_pass(g, request));
  EXPECT_EQ(plan.devices[0].kv, 6U * 2 * 8 * 4 * 10'000);
  EXPECT_GT(plan.devices[0].activations, 0U);
  ASSERT_TRUE(plan.first_token.has_value());
  EXPECT_GT(plan.first_token->seconds, plan.token.seconds);
}

TEST(HaulPlanner, CountsTheDriverAsItWasMeasured) {
  const Description g = with_dimensions();
  Profile profile;
  profile.gpus[0].context = 300 * kMiB;
  profile.gpus[0].recorded = 100 * kMiB;
  PlanRequest request = ask(g, "0=1GiB,cpu=1GiB");
  request.context = 100;
  const Plan all = make_plan(g, request, profile);
  EXPECT_EQ(weights_on(all, gpu(0)), 15'076U);
  EXPECT_EQ(all.devices[0].context, 400 * kMiB + of_a_pass(g, request));
  // Where some lies elsewhere no pass is recorded, but a GPU has to find what lies in RAM.
  request.memory[0].bits = 8 * (all.devices[0].used() - 1000);
  const Plan some = make_plan(g, request, profile);
  EXPECT_LT(weights_on(some, gpu(0)), 15'076U);
  EXPECT_GT(weights_on(some, gpu(0)), 0U);
  const Bytes in_ram = weights_on(some, kCpuDevice) + some.devices[1].margins;
  EXPECT_EQ(some.devices[0].context, 300 * kMiB + in_ram / 512);
  EXPECT_GT(in_ram / 512, 0U);
}

TEST(HaulPlanner, MemoryForRecordedPassesIsForSlotsWhereNoneAre) {
  const Description g = with_dimensions();
  Profile recorded;
  recorded.gpus[0].recorded = 2 * kMiB + 1000;  // somewhat more than to find weights in RAM
  Profile none = recorded;
  none.gpus[0].recorded = 0;
  PlanRequest request = ask(g, "0=1GiB,cpu=1GiB");
  request.context = 100;
  const Bytes all = make_plan(g, request, recorded).devices[0].used();
  int with_slots = 0;
  for (Bytes less = 1; less < 14'000; less += 100) {
    request.memory[0].bits = 8 * (all - less);
    request.given_map.reset();
    const Plan plan = make_plan(g, request, recorded);
    expect_sound(g, plan);
    if (plan.devices[0].slots == 0) continue;
    ++with_slots;
    request.given_map = plan.map;
    const Plan without = make_plan(g, request, none);
    EXPECT_EQ(plan.devices, without.devices) << less;
    EXPECT_EQ(plan.token, without.token) << less;
    EXPECT_EQ(plan.first_token, without.first_token) << less;
    EXPECT_LE(plan.best_possible, plan.token.seconds) << less;
    // A map that needs all of what is there.
    request.memory[0].bits = 8 * without.devices[0].used();
    EXPECT_TRUE(make_plan(g, request, recorded).fits) << less;
  }
  EXPECT_GT(with_slots, 0);
}

TEST(HaulPlanner, RamThatIsLeftIsForReadsFromDisk) {
  const Description g = with_dimensions();
  PlanRequest request = ask(g, "cpu=1GiB");
  request.context = 100;
  const PlanDevice all = make_plan(g, request, {}).devices[0];
  int reading = 0;
  for (Bytes less = 1; less < all.weights; less += all.weights / 16) {
    request.memory[0].bits = 8 * (all.used() - less);
    const Plan plan = make_plan(g, request, {});
    if (!plan.fits || plan.devices[0].slots == 0) continue;
    ++reading;
    expect_sound(g, plan);
    EXPECT_EQ(plan.devices[0].used(), all.used() - less);
  }
  EXPECT_GT(reading, 0);
}

TEST(HaulPlanner, RamThatIsLeftBesideAGpuIsForWhatPassesThroughIt) {
  const Description llama = core::describe_config(
      core::parse_json(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "max_position_embeddings": 8192, "dtype": "bfloat16"})",
                       "config.json"),
      "config.json", {false, core::WeightDtype::kStored});
  Profile profile;
  profile.measured = true;
  profile.gpu.link_bandwidth = 1e9;  // the CPU had better compute what is not on the GPU
  profile.ram_bandwidth = 1e11;
  profile.help_bandwidth = 0;
  profile.hop = 1e-6;
  PlanRequest request = ask(llama, "0=8GB,cpu=4GB");
  request.context = 96;
  request.dtype = Dtype::kBF16;
  const auto slots_of = [&](std::size_t device) {
    const Plan plan = make_plan(llama, request, profile);
    expect_sound(llama, plan);
    EXPECT_TRUE(std::any_of(plan.steps.begin(), plan.steps.end(), [](const PlanStep& step) {
      return step.lies == kDiskDevice && step.runs_on == kCpuDevice && !step.looked_up;
    }));
    return plan.devices[device].slots;
  };
  constexpr Bytes kLargest = 2 * 14336 * 4096;  // weight
  EXPECT_EQ(slots_of(1), 2 * kLargest);
  request.memory.erase(request.memory.begin());
  EXPECT_EQ(slots_of(0), kLargest + kReadAhead) << "alone";
}

TEST(HaulPlanner, FindsTheLongestContextThatNeedsNoOffload) {
  const Description g = with_dimensions();
  PlanRequest request = ask(g, "0=816MiB");
  request.dtype = Dtype::kF32;
  const auto longest = longest_context(g, request, Profile{}, 1, 100'000);
  ASSERT_TRUE(longest.has_value());
  const auto stays = [&](std::int64_t context) {
    request.context = context;
    const Plan plan = make_plan(g, request, Profile{});
    return plan.fits && weights_on(plan, gpu(0)) == 15'076;
  };
  EXPECT_TRUE(stays(*longest));
  EXPECT_FALSE(stays(*longest + 1));
  EXPECT_FALSE(longest_context(g, request, Profile{}, *longest + 1, 100'000).has_value());
}

class RandomTree {
 public:
  explicit RandomTree(unsigned seed) : random_(seed) {}

  Description make() {
    Description description;
    description.root = module("", pick(1, 3));
    description.root.class_name = "Model";
    description.no_split = {"Block"};
    for (int i = 0; i < pick(0, 2) && names_.size() > 3; ++i) {
      std::shuffle(names_.begin(), names_.end(), random_);
      description.tied.push_back({names_[0], names_[1]});
      names_.erase(names_.begin(), names_.begin() + 2);
    }
    return description;
  }

  std::string memory(Bytes total) {
    std::string result;
    const auto add = [&](const std::string& device, double least) {
      const double share = least + std::uniform_real_distribution<>(0, 1)(random_);
      result += (result.empty() ? "" : ",") + device + "=" +
                std::to_string(static_cast<Bytes>(share * static_cast<double>(total)));
    };
    const int gpus = pick(0, 3);
    for (int g = 0; g < gpus; ++g) add(std::to_string(g * pick(1, 2) + g), -0.0);
    if (pick(0, 2) > 0) add("cpu", 0.1);
    if (pick(0, 4) == 0) add("disk", 0);
    return result;
  }

  int pick(int low, int high) { return std::uniform_int_distribution<>(low, high)(random_); }

 private:
  ModuleSpec module(const std::string& path, int depth) {
    ModuleSpec result;
    result.class_name = pick(0, 2) == 0 ? "Block" : "Layer";
    const bool inner = path.empty() || (depth > 0 && pick(0, 2) > 0);
    const int parameters = inner ? pick(0, 4) / 4 : pick(1, 2);
    for (int i = 0; i < parameters; ++i) {
      const std::string name = "w" + std::to_string(i);
      result.parameters.push_back({name, Dtype::kF32, {pick(1, 40), 8}});
      names_.push_back(path.empty() ? name : path + "." + name);
    }
    if (pick(0, 5) == 0)
      result.buffers.push_back({"b", Dtype::kF32, {pick(1, 40)}, pick(0, 1) == 1});
    for (int i = 0; inner && i < pick(1, 4); ++i) {
      const std::string name = std::to_string(i);
      result.children.push_back(module(path.empty() ? name : path + "." + name, depth - 1));
      result.children.back().name = name;
    }
    return result;
  }

  std::mt19937 random_;
  std::vector<std::string> names_;
};

// Ten thousand in all.
class RandomTrees : public testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Seeds, RandomTrees, testing::Range(0U, 10'000U, 2'000U));

TEST_P(RandomTrees, KeepTheirPromises) {
  int fitted = 0;
  int compared = 0;
  int judged = 0;
  int refused = 0;
  for (unsigned seed = GetParam(); seed < GetParam() + 2'000; ++seed) {
    RandomTree random(seed);
    const Description d = random.make();
    const ModuleSizes sizes = compute_module_sizes(d);
    const std::string memory = random.memory(whole_bytes(sizes.total()));
    const MapMode mode = static_cast<MapMode>(random.pick(0, 3));
    SCOPED_TRACE(std::to_string(seed) + " " + memory);
    const PlanRequest request = ask(d, memory, mode);
    const core::ModelWorld model =
        core::build_world(d, sizes, request.options, request.memory, Profile{},
                          core::plan_workload(d, request, Profile{}));
    const Plan plan = make_plan(d, request, Profile{});
    if (plan.fits) {
      ++fitted;
      expect_sound(d, plan);
    }
    if (model.world.units.size() <= 8) {
      ++judged;
      refused += plan.fits ? 0 : 1;
      ASSERT_EQ(plan.fits, test::fits_somewhere(model.world));
    }
    const Plan peer = plan_of(d, memory, mode, Planner::kAccelerate);
    if (peer.fits) {
      ASSERT_TRUE(plan.fits);
      if (mode == MapMode::kAuto) {
        ++compared;
        ASSERT_LE(plan.token.seconds, peer.token.seconds * (1 + 1e-9));
      }
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(fitted, 1'200);
  EXPECT_GT(compared, 200);
  EXPECT_GT(judged, 1'700);
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace haul
