#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "haul/device_map.h"
#include "tests/support/trees.h"

namespace haul {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// "linear1=0 linear2=cpu": a map as text.
std::string text(const DeviceMap& map) {
  std::string result;
  for (const auto& [name, device] : map) {
    result += (result.empty() ? "" : " ") + name + "=" + to_string(device);
  }
  return result;
}

std::string text(const MaxMemory& memory) {
  std::string result;
  for (const Budget& item : memory) {
    result +=
        (result.empty() ? "" : " ") + to_string(item.device) + "=" + std::to_string(item.bytes());
  }
  return result;
}

InferredMap infer(const Description& description, const std::string& memory,
                  MapOptions options = {}) {
  if (options.no_split.empty()) options.no_split = description.no_split;
  return infer_auto_device_map(description, parse_max_memory(memory), options);
}

std::string map_of(const Description& description, const std::string& memory,
                   MapOptions options = {}) {
  return text(infer(description, memory, std::move(options)).map);
}

std::string balanced(const Description& description, const std::string& memory,
                     bool low_zero = false, std::vector<std::string> no_split = {}) {
  MapOptions options;
  options.no_split = no_split.empty() ? description.no_split : std::move(no_split);
  return text(get_balanced_memory(description, parse_max_memory(memory), options, {low_zero, false})
                  .memory);
}

Description tied(Description description, std::vector<std::vector<std::string>> groups) {
  description.tied = std::move(groups);
  return description;
}

TEST(PeerPlanner, KeepsRoomForTheLargestLayerOnTheFirstGpu) {
  EXPECT_EQ(map_of(test::tree_m(), "0=200,1=200"), "batchnorm=1 linear1=0 linear2=1");
  EXPECT_EQ(map_of(test::tree_m(), "0=200,1=172,2=200"), "batchnorm=1 linear1=0 linear2=1");
}

TEST(PeerPlanner, PutsTiedModulesTogether) {
  const Description m = tied(test::tree_m(), {{"linear1.weight", "linear2.weight"}});
  EXPECT_EQ(map_of(m, "0=200,1=200"), "=0");
  const Description l3 =
      tied(test::tree_l3(), {{"layer1.linear2.weight", "layer3.linear2.weight"}});
  EXPECT_EQ(map_of(l3, "0=400,1=500"),
            "layer1=0 layer2=1 layer3.batchnorm=1 layer3.linear1=1 layer3.linear2=0");
  const Description three =
      tied(test::tree_l3(),
           {{"layer1.linear2.weight", "layer2.linear2.weight", "layer3.linear2.weight"}});
  EXPECT_EQ(map_of(three, "0=400,1=500"),
            "layer1=0 layer2.batchnorm=1 layer2.linear1=1 layer2.linear2=0 layer3.batchnorm=1 "
            "layer3.linear1=1 layer3.linear2=0");
}

TEST(PeerPlanner, SplitsModulesUnlessTheirClassMustStayWhole) {
  EXPECT_EQ(map_of(test::tree_mm(), "0=500,1=500"),
            "0=0 1.batchnorm=0 1.linear1=0 1.linear2=1 2=1");
  MapOptions whole;
  whole.no_split = {"M"};
  EXPECT_EQ(map_of(test::tree_mm(), "0=500,1=500", whole), "0=0 1=1 2=1");
}

TEST(PeerPlanner, WarnsOfBuffersThatNoGpuCanHold) {
  Description m = test::tree_m();
  m.root.children[0].buffers = {{"b", Dtype::kF32, {20}, true}};
  m.root.children[1].buffers.push_back({"b", Dtype::kF32, {30}, true});
  m.root.children[2].buffers = {{"b", Dtype::kF32, {30}, true}};
  InferredMap found = infer(m, "0=400,cpu=1GB");
  EXPECT_EQ(text(found.map), "batchnorm=cpu linear1=0 linear2=cpu");
  ASSERT_EQ(found.warnings.size(), 1U);
  EXPECT_THAT(found.warnings[0], HasSubstr("280 bytes"));
  MapOptions offload;
  offload.offload_buffers = true;
  found = infer(m, "0=400,cpu=1GB", offload);
  EXPECT_EQ(text(found.map), "batchnorm=cpu linear1=0 linear2=cpu");
  EXPECT_THAT(found.warnings, IsEmpty());
}

TEST(PeerPlanner, FallbackFindsASmallerModuleForAnEmptyDevice) {
  const Description d = test::describe(test::container(
      "", "Model",
      {test::container("module", "Inner",
                       {test::linear("linear1", 10, 4), test::linear("linear2", 4, 4),
                        test::linear("linear3", 4, 8)})}));
  const InferredMap plain = infer(d, "0=256");
  EXPECT_EQ(text(plain.map), "=disk");
  ASSERT_EQ(plain.minimum_needed.size(), 1U);
  EXPECT_EQ(plain.minimum_needed[0], budget(gpu(0), 336));
  MapOptions fallback;
  fallback.fallback_allocation = true;
  EXPECT_EQ(map_of(d, "0=256", fallback),
            "module.linear1=disk module.linear2=0 module.linear3=disk");
}

TEST(PeerPlanner, ExactBudgets) {
  EXPECT_EQ(map_of(test::tree_m(), "0=236,cpu=1000"), "=0");
  EXPECT_EQ(map_of(test::tree_m(), "0=235,cpu=1000"), "batchnorm=cpu linear1=0 linear2=cpu");
  EXPECT_EQ(map_of(test::tree_m(), "0=164,cpu=1000"), "batchnorm=cpu linear1=0 linear2=cpu");
  EXPECT_EQ(map_of(test::tree_m(), "0=163,cpu=1000"), "=cpu");
  EXPECT_EQ(map_of(test::tree_m(), ""), "=disk");
}

TEST(PeerPlanner, IgnoresABudgetForTheDisk) {
  EXPECT_EQ(map_of(test::tree_m(), "0=200,disk=10,cpu=150"),
            "batchnorm=disk linear1=0 linear2=disk");
}

TEST(PeerPlanner, PlacesALanguageModel) {
  EXPECT_EQ(map_of(test::tree_g(false), "0=10000,1=10000"),
            "h.0=0 h.1=0 h.2=1 h.3=1 h.4=1 h.5=1 lm_head=1 ln=1 wte=0");
  EXPECT_EQ(map_of(test::tree_g(true), "0=10000,1=10000"),
            "h.0=0 h.1=0 h.2=0 h.3=1 h.4=1 h.5=1 lm_head=0 ln=1 wte=0");
}

TEST(PeerPlanner, LetsEverythingFallThroughToDisk) {
  EXPECT_EQ(map_of(test::tree_g(false), "0=6000,cpu=6000"), "=disk");
  EXPECT_EQ(map_of(test::tree_g(true), "0=6000,cpu=6000"),
            "h.0=cpu h.1=cpu h.2=cpu h.3=disk h.4=disk h.5=disk lm_head=0 ln=disk wte=0");
}

TEST(PeerPlanner, CountsTheReserveTwiceForATiedPair) {
  const Description pair = test::describe(
      test::container("", "Pair", {test::linear("a", 10, 10), test::linear("b", 10, 10)}),
      {{"a.weight", "b.weight"}});
  EXPECT_EQ(map_of(pair, "0=519"), "=disk");
  EXPECT_EQ(map_of(pair, "0=520"), "=0");
}

TEST(PeerPlanner, GivesAMapWhereThePeerCrashesOnNumericNames) {
  std::vector<ModuleSpec> numbers;
  std::vector<ModuleSpec> letters;
  for (int i = 0; i < 12; ++i) {
    numbers.push_back(test::linear(std::to_string(i), 10, 10));
    letters.push_back(test::linear(std::string(1, static_cast<char>('a' + i)), 10, 10));
  }
  const Description by_number =
      test::describe(test::container("", "List", numbers), {{"5.weight", "11.weight"}});
  const InferredMap found = infer(by_number, "0=2000,1=10000");
  EXPECT_EQ(found.peer_failure, "IndexError");
  const DeviceMapCheck check = check_device_map(by_number, found.map);
  EXPECT_TRUE(check.covers_everything());
  EXPECT_THAT(check.split_ties, IsEmpty());
  const InferredMap same =
      infer(test::describe(test::container("", "List", letters), {{"f.weight", "l.weight"}}),
            "0=2000,1=10000");
  EXPECT_EQ(same.peer_failure, "");
  EXPECT_EQ(text(same.map), "a=0 b=0 c=0 d=1 e=1 f=1 g=1 h=1 i=1 j=1 k=1 l=1");
}

TEST(PeerPlanner, KeepsTheBuffersOfSplitModules) {
  Description d = test::tree_mm();
  d.root.children[1].buffers = {{"scale", Dtype::kF32, {2}, true}};
  const InferredMap found = infer(d, "0=500,1=600");
  EXPECT_EQ(found.peer_failure, "rejected");
  EXPECT_TRUE(check_device_map(d, found.map).covers_everything());
}

TEST(BalancedMemory, SharesTheModelAndLeavesTheLastGpuAlone) {
  const Description m = test::tree_m();
  EXPECT_EQ(balanced(m, "0=300,1=300"), "0=215 1=300");
  EXPECT_EQ(balanced(m, "0=300,1=500"), "0=215 1=500");
  EXPECT_EQ(balanced(m, "0=200,1=200"), "0=200 1=200");
  EXPECT_EQ(balanced(m, "0=300,cpu=1000"), "0=300 cpu=1000");
  EXPECT_EQ(balanced(m, "0=0,1=300,2=300"), "0=0 1=215 2=300");
  EXPECT_EQ(balanced(m, "0=0,cpu=100"), "0=0 cpu=100");
  EXPECT_EQ(balanced(m, "0=200,2=200"), "0=200 2=200");
}

TEST(BalancedMemory, LowZero) {
  EXPECT_EQ(balanced(test::tree_g(false), "0=20000,1=20000"), "0=9338 1=20000");
  EXPECT_EQ(balanced(test::tree_g(false), "0=20000,1=20000", true), "0=0 1=20000");
  EXPECT_EQ(balanced(test::tree_m(), "0=300,1=0,2=300", true), "0=236 1=0 2=300");
}

TEST(BalancedMemory, LowZeroWithGapsIsOursWhereThePeerCrashes) {
  const auto found =
      get_balanced_memory(test::tree_m(), parse_max_memory("0=300,3=300"), {}, {true, false});
  EXPECT_EQ(found.peer_failure, "KeyError");
  EXPECT_EQ(text(found.memory), "0=0 3=300");
}

TEST(BalancedMemory, LeavesTheLastGpuEmptyAsThePeerDoes) {
  EXPECT_EQ(balanced(test::tree_mm(), "0=1000,1=1000,2=1000"), "0=333 1=333 2=1000");
  EXPECT_EQ(balanced(test::tree_mm(), "0=1000,1=1000,2=1000", false, {"M"}), "0=531 1=531 2=1000");
  MapOptions whole;
  whole.no_split = {"M"};
  EXPECT_EQ(map_of(test::tree_mm(), "0=531,1=531,2=1000", whole), "0=0 1=1 2=1");
  EXPECT_EQ(balanced(test::tree_n(), "0=10000,1=10000,2=10000,3=10000"),
            "0=1991 1=1991 2=1991 3=10000");
  EXPECT_EQ(map_of(test::tree_n(), "0=1991,1=1991,2=1991,3=10000"),
            "blocks.0=0 blocks.1=1 blocks.2=1 blocks.3=2 out=2");
}

TEST(BalancedMemory, KeepsATenthOfASingleGpuWhenTheMachineWasAsked) {
  const auto found =
      get_balanced_memory(test::tree_m(), parse_max_memory("0=1000,cpu=1000"), {}, {false, true});
  EXPECT_EQ(text(found.memory), "0=900 cpu=1000");
}

}  // namespace
}  // namespace haul
