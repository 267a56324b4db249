// Plans that count the room around each tensor.

#include <gtest/gtest.h>

#include "haul/plan.h"
#include "haul/tensor_memory.h"
#include "tests/support/trees.h"

namespace haul {
namespace {

PlanRequest request_for(const Description& description, const std::string& memory) {
  PlanRequest request;
  request.memory = parse_max_memory(memory);
  request.options.no_split = description.no_split;
  request.margins = true;
  return request;
}

PlanDevice ram_of(const Plan& plan) {
  for (const PlanDevice& device : plan.devices) {
    if (device.device == kCpuDevice) return device;
  }
  ADD_FAILURE() << "a plan without RAM";
  return {};
}

// Of all tensors below a module, tied ones once.
struct Sum {
  Bytes bytes = 0;
  Bytes resident = 0;
  Bytes slots = 0;
};
Sum sum_of(const Description& description, const std::string& module = "") {
  const ModuleSizes sizes = compute_module_sizes(description);
  Sum sum;
  const ModuleSizes::Index top = module.empty() ? ModuleSizes::kRoot : *sizes.find(module);
  for (ModuleSizes::Index i = top; i < sizes[top].end; ++i) {
    if (sizes[i].module != nullptr || sizes[i].bits == 0) continue;
    const Bytes bytes = whole_bytes(sizes[i].bits);
    sum.bytes += bytes;
    sum.resident += resident_memory(bytes);
    sum.slots += slot_memory(bytes);
  }
  return sum;
}

TEST(TensorMemory, IsRoundedAndHasRoomForDirectReads) {
  EXPECT_EQ(resident_memory(0), 0U);
  EXPECT_EQ(resident_memory(1), 512U);
  EXPECT_EQ(resident_memory(512), 512U);
  EXPECT_EQ(resident_memory(kMiB - 1), kMiB);
  EXPECT_EQ(resident_memory(kMiB), kMiB + 8192);
  EXPECT_EQ(slot_memory(0), 512U + 8192);
  EXPECT_EQ(slot_memory(513), 1024U + 8192);
}

TEST(PlanMargins, AreTheRoomAroundEachTensor) {
  const Description g = test::tree_g(true);
  const PlanDevice ram = ram_of(make_plan(g, request_for(g, "cpu=1GB"), Profile{}));
  const Sum sum = sum_of(g);
  EXPECT_EQ(ram.weights, sum.bytes);
  EXPECT_EQ(ram.weights + ram.margins, sum.resident);
  EXPECT_EQ(ram.used(), sum.resident);
}

TEST(PlanMargins, AreKeptWithinTheBudget) {
  const Description g = test::tree_g(true);
  const Bytes all = sum_of(g).resident;
  EXPECT_TRUE(make_plan(g, request_for(g, "cpu=" + std::to_string(all)), Profile{}).fits);
  const Plan less = make_plan(g, request_for(g, "cpu=" + std::to_string(all - 1)), Profile{});
  EXPECT_LE(ram_of(less).used(), all - 1);
  EXPECT_TRUE(!less.fits || less.steps.size() > 1);
}

TEST(PlanMargins, SlotsAreNoMoreThanAllThatComes) {
  const Description g = test::tree_g(true);
  PlanRequest request = request_for(g, "cpu=1GB");
  request.context = 8;
  request.given_map = DeviceMap{{"", kCpuDevice}, {"ln", kDiskDevice}};
  EXPECT_EQ(ram_of(make_plan(g, request, Profile{})).slots, sum_of(g, "ln").slots);
  request.given_map = DeviceMap{{"", kDiskDevice}};
  const PlanDevice ram = ram_of(make_plan(g, request, Profile{}));
  EXPECT_GT(ram.slots, sum_of(g, "ln").slots);
  EXPECT_EQ(ram.margins, 0U);
}

TEST(PlanMargins, MeanNothingToAcceleratesPlanner) {
  const Description g = test::tree_g(true);
  PlanRequest request = request_for(g, "0=6000,cpu=6000");
  request.planner = Planner::kAccelerate;
  const Plan with = make_plan(g, request, Profile{});
  request.margins = false;
  EXPECT_EQ(with, make_plan(g, request, Profile{}));
}

TEST(PlanMargins, BuffersOfWeightsOnDiskLieWhereTheyAreUsed) {
  Description d;
  d.root.class_name = "Model";
  d.root.children.push_back(test::linear("first", 64, 64));
  d.root.children.back().buffers.push_back({"kept", Dtype::kBool, {1000}, true});
  PlanRequest request = request_for(d, "cpu=1GB");
  request.context = 8;
  request.given_map = DeviceMap{{"", kDiskDevice}};
  const PlanDevice ram = ram_of(make_plan(d, request, Profile{}));
  EXPECT_EQ(ram.weights + ram.margins, 1024U) << "a bool is a byte in memory";
}

TEST(PlanFile, KeepsMarginsAndDtype) {
  const Description g = test::tree_g(true);
  PlanRequest request = request_for(g, "cpu=1GB");
  request.context = 8;
  request.dtype = Dtype::kF16;
  const Plan plan = make_plan(g, request, Profile{});
  EXPECT_EQ(plan.dtype, Dtype::kF16);
  const Plan again = read_plan(write_plan(plan), "plan.json");
  EXPECT_EQ(again, plan);
  EXPECT_GT(ram_of(again).margins, 0U);
}

}  // namespace
}  // namespace haul
