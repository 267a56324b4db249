// Where what lies in RAM is used: as the plan says, without a GPU to see it.

#include "runtime/dispatch/placement.h"

#include <set>

#include <gtest/gtest.h>

#include "tests/support/small_models.h"

namespace haul::runtime {
namespace {

class PlacedOnTwoGpus : public testing::Test {
 protected:
  PlacedOnTwoGpus() {
    Profile profile;
    profile.ram_bandwidth = 1e6;  // the CPU is to compute nothing
    profile.help_bandwidth = 0;
    profile.gpus[0].link_bandwidth = 1e9;  // weights are to come to the other one
    PlanRequest request;
    request.memory = parse_max_memory("0=4MB,1=3MB,cpu=1GB");
    request.options.no_split = model.description.no_split;
    plan = make_plan(model.description, request, profile);
  }

  std::set<std::string> streamed_to(c10::Device device, const DispatchOptions& options) const {
    const std::vector<c10::ScalarType> types(model.all.size(), at::kFloat);
    std::set<std::string> found;
    for (const Unit& unit : place_units(model, types, Memory::kKept, plan, options).units) {
      if (unit.lies == kCpuDevice && unit.runs_on == device) found.insert(unit.name);
    }
    return found;
  }

  std::shared_ptr<models::Model> made = test::made_model(test::kSmallModels[2].config);
  ModelTensors model = read_model(ModelRef(*made));
  Plan plan;
};

TEST_F(PlacedOnTwoGpus, WeightsAreStreamedToTheOneThatThePlanSays) {
  ASSERT_TRUE(plan.fits);
  Bytes planned[2] = {};
  for (const PlanStep& step : plan.steps) {
    if (step.lies == kCpuDevice && step.runs_on.is_accelerator()) {
      planned[step.runs_on.index] += step.weights;
    }
  }
  ASSERT_GT(planned[1], 0U);
  for (const int index : {0, 1}) {
    const auto names = streamed_to(real_device(gpu(index)), {});
    Bytes bytes = 0;
    for (const ModelTensor& item : model.all) {
      if (names.contains(item.name) && !item.is_buffer) bytes += item.tensor.nbytes();
    }
    EXPECT_EQ(bytes, planned[index]) << "GPU " << index;
  }
}

TEST_F(PlacedOnTwoGpus, WeightsAreStreamedToTheMainOneThatIsAskedFor) {
  DispatchOptions options;
  options.main_device = c10::Device(c10::kCUDA, 1);
  EXPECT_TRUE(streamed_to(real_device(gpu(0)), options).empty());
  EXPECT_FALSE(streamed_to(real_device(gpu(1)), options).empty());
}

}  // namespace
}  // namespace haul::runtime
