// NCCL's group on one GPU.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "core/launch/ports.h"
#include "distributed/group/state.h"
#include "haul/torch/partial_state.h"

namespace haul {
namespace {

TEST(NcclGroup, StartsAndRunsOnOneGpu) {
  const PartialState state;
  ASSERT_TRUE(state.device().is_cuda()) << state.device();
  // A process alone has no need for it: here it gets what each of several would have.
  distributed::GroupPlace place{state.state().environment, state.device(),
                                std::chrono::seconds(60)};
  place.environment.master_port = core::free_port();
  state.state().group = distributed::make_nccl_group(place);
  EXPECT_EQ(state.backend(), "nccl");

  for (const c10::Device device : {state.device(), c10::Device(at::kCPU)}) {
    SCOPED_TRACE(device.str());
    const auto on_device = at::TensorOptions().device(device);
    for (const auto type : {at::kFloat, at::kBFloat16, at::kLong}) {
      const at::Tensor number = at::full({2, 3}, 7, on_device.dtype(type));
      EXPECT_TRUE(state.reduce(number, Reduction::kSum).equal(number));
      EXPECT_TRUE(state.gather(number).equal(number));
      EXPECT_TRUE(state.broadcast(number, 0).equal(number));
      EXPECT_EQ(state.gather(number).device(), device);
    }
    const at::Tensor flags = at::arange(5, on_device).ge(2);
    EXPECT_TRUE(state.gather(flags).equal(flags));
  }
  EXPECT_EQ(state.gather_object(std::string("text")), std::vector<std::string>{"text"});
  EXPECT_EQ(state.broadcast_object(std::string("text")), "text");
  state.wait_for_everyone();
  PartialState::destroy_process_group();
}

}  // namespace
}  // namespace haul
