#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "haul/torch/dispatch.h"
#include "haul/torch/empty_weights.h"
#include "tests/runtime/dispatch/same_outputs.h"
#include "tests/support/expect_error.h"
#include "tests/support/gpu_hog.h"
#include "tests/support/temporary_folder.h"

namespace haul {
namespace {

namespace nn = torch::nn;
using testing::HasSubstr;

const std::vector<test::World> kWorlds = {
    test::everything("all on the GPU", gpu(0)),
    test::everything("all in RAM", kCpuDevice),
    test::everything("all on disk", kDiskDevice),
    test::in_turn("GPU and RAM", {gpu(0), kCpuDevice}),
    test::in_turn("GPU, RAM and disk", {gpu(0), kCpuDevice, kDiskDevice}),
};

TEST(GpuDispatch, StockModulesGiveTheSameBitsAndGradients) {
  test::SameOptions options;
  options.device = at::Device(at::kCUDA, 0);
  test::expect_same_stock_modules(kWorlds, options);
}

TEST(GpuDispatch, BuffersThatTheCheckpointLacksGoWhereTheyAreUsed) {
  struct PlainImpl : nn::Module {
    PlainImpl() { linear = register_module("linear", nn::Linear(8, 8)); }
    nn::Linear linear{nullptr};
  };
  struct MaskedImpl : PlainImpl {
    MaskedImpl() { mask = register_buffer("mask", torch::ones({8, 8}).tril()); }
    at::Tensor forward(const at::Tensor& x) { return linear(x).mul(mask); }
    at::Tensor mask;
  };
  torch::manual_seed(6);
  PlainImpl plain;
  const test::TemporaryFolder checkpoint;
  save_model(plain, checkpoint.path());
  const at::Tensor input = torch::randn({8, 8}, torch::kCUDA);
  plain.to(torch::kCUDA);
  const at::Tensor expected = plain.linear(input) * torch::ones({8, 8}, torch::kCUDA).tril();
  for (const Device device : {gpu(0), kCpuDevice, kDiskDevice}) {
    std::shared_ptr<MaskedImpl> masked;
    {
      const EmptyWeights scope;
      masked = std::make_shared<MaskedImpl>();
    }
    LoadOptions options;
    options.main_device = at::Device(at::kCUDA, 0);
    options.log = [](const std::string&) {};
    load_checkpoint_in_model(*masked, checkpoint.path(), DeviceMap{{"", device}}, options);
    EXPECT_TRUE(masked->mask.is_cuda()) << to_string(device);
    EXPECT_TRUE(masked->forward(input).equal(expected)) << to_string(device);
  }
}

// Large enough that many weights are on their way at once, through few slots.
nn::Sequential chain(int layers, int width) {
  nn::Sequential model;
  for (int i = 0; i < layers; ++i) model->push_back(nn::Linear(width, width));
  return model;
}

class Chain : public testing::Test {
 protected:
  Chain() {
    torch::manual_seed(5);
    model = chain(24, 1024);
    save_model(model, checkpoint.path());
    input = torch::randn({4, 1024});
    model->to(torch::kCUDA);
    expected = model->forward(input.cuda()).detach();
  }
  static nn::Sequential empty() {
    const EmptyWeights scope;
    return chain(24, 1024);
  }

  nn::Sequential model{nullptr};
  at::Tensor input, expected;
  test::TemporaryFolder checkpoint;
};

TEST_F(Chain, StreamsThroughFewSlots) {
  for (const Device home : {kCpuDevice, kDiskDevice}) {
    nn::Sequential loaded = empty();
    LoadOptions options;
    options.main_device = at::Device(at::kCUDA, 0);
    options.slots = 14 << 20;  // three weights
    load_checkpoint_in_model(loaded, checkpoint.path(), DeviceMap{{"", home}}, options);
    const at::NoGradGuard no_gradients;
    for (int pass = 0; pass < 20; ++pass) {
      ASSERT_TRUE(loaded->forward(input.cuda()).equal(expected)) << to_string(home) << " " << pass;
    }
    EXPECT_EQ(dispatch_report(loaded).unplanned, 0U);
  }
}

TEST_F(Chain, BringsInputsAndTakesOutputsBack) {
  nn::Sequential loaded = empty();
  LoadOptions options;
  options.main_device = at::Device(at::kCUDA, 0);
  auto handle = load_checkpoint_and_dispatch(loaded, checkpoint.path(),
                                             DeviceMap{{"", kCpuDevice}, {"0", gpu(0)}}, options);
  const at::Tensor output = handle(input);
  EXPECT_TRUE(output.is_cpu());
  EXPECT_TRUE(output.equal(expected.cpu()));
  EXPECT_TRUE(loaded->forward(input).is_cuda()) << "a direct call leaves it there";
  at::Tensor x = input.clone().requires_grad_();
  handle(x).sum().backward();
  EXPECT_TRUE(x.grad().is_cpu());
  at::Tensor y = input.clone().cuda().requires_grad_();
  model->forward(y).sum().backward();
  EXPECT_TRUE(x.grad().equal(y.grad().cpu()));
  at::Tensor z = input.clone().requires_grad_();
  test::expect_error(ErrorKind::kUnsupported, HasSubstr("needs a gradient"),
                     [&] { loaded->forward(z); });
}

TEST_F(Chain, ComputesPartlyOnTheCpuAndBringsTheRestTogether) {
  // The middle runs where it lies: a plan may say so, and here the options do.
  nn::Sequential loaded = empty();
  Plan plan;
  plan.fits = true;
  plan.map = {{"", gpu(0)}};
  plan.map.clear();
  for (int i = 0; i < 24; ++i) {
    plan.map.emplace_back(std::to_string(i), i >= 8 && i < 12 ? kCpuDevice : gpu(0));
  }
  plan.steps = {{"0", "7", 8, gpu(0), gpu(0), 0},
                {"8", "11", 4, kCpuDevice, kCpuDevice, 0},
                {"12", "23", 12, gpu(0), gpu(0), 0}};
  load_checkpoint_in_model(loaded, checkpoint.path(), plan, {});
  const at::NoGradGuard no_gradients;
  const at::Tensor output = loaded->forward(input);
  EXPECT_TRUE(output.is_cuda());
  EXPECT_TRUE(torch::allclose(output.to(torch::kCPU), expected.cpu(), 1e-4, 1e-5));
  const at::Tensor residual = loaded->forward(input) + output.cpu();
  EXPECT_TRUE(torch::allclose(residual.to(torch::kCPU), 2 * expected.cpu(), 1e-4, 1e-5));
}

TEST_F(Chain, GoesOnWhenAGpuHasMemoryAgain) {
  const at::NoGradGuard no_gradients;
  // So many that torch has to ask the GPU for what comes out.
  const at::Tensor many = torch::randn({8192, 1024}, torch::kCUDA);
  expected = model->forward(many);
  LoadOptions options;
  options.main_device = at::Device(at::kCUDA, 0);
  for (const test::World& world : kWorlds) {
    SCOPED_TRACE(world.name);
    const DeviceMap map = world.map(test::tensor_names(model));
    nn::Sequential loaded = empty();
    load_checkpoint_in_model(loaded, checkpoint.path(), map, options);
    {
      const test::Hog others;
      const auto fail = [&] {
        nn::Sequential another = empty();
        test::expect_error(ErrorKind::kResource, HasSubstr("GPU 0"), [&] {
          load_checkpoint_in_model(another, checkpoint.path(), map, options);
        });
        EXPECT_THROW(loaded->forward(many), c10::OutOfMemoryError);
        Dispatched<nn::Sequential> called(loaded, input_output(loaded, options));
        test::expect_error(ErrorKind::kResource, HasSubstr("the model: not enough memory: "),
                           [&] { called(many); });
      };
      fail();
      const Bytes free = test::free_without_pools();
      fail();
      EXPECT_EQ(test::free_without_pools(), free) << "something stayed";
    }
    EXPECT_TRUE(loaded->forward(many).equal(expected));
    nn::Sequential another = empty();
    load_checkpoint_in_model(another, checkpoint.path(), map, options);
    EXPECT_TRUE(another->forward(many).equal(expected));
  }
}

TEST_F(Chain, RunsInManyThreadsWithTheirOwnStreams) {
  nn::Sequential loaded = empty();
  LoadOptions options;
  options.main_device = at::Device(at::kCUDA, 0);
  options.slots = 30 << 20;
  load_checkpoint_in_model(loaded, checkpoint.path(), DeviceMap{{"", kCpuDevice}}, options);
  std::atomic<int> wrong = 0;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const at::NoGradGuard no_gradients;
      for (int i = 0; i < 20; ++i) wrong += !loaded->forward(input.cuda()).equal(expected);
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace haul
