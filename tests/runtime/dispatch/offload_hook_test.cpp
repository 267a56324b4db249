#include "haul/torch/offload_hook.h"

#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace haul {
namespace {

namespace nn = torch::nn;
using testing::HasSubstr;

const DeviceMap kOnDisk{{"", kDiskDevice}};
const DeviceMap kInRam{{"", kCpuDevice}};

nn::Sequential make_model() {
  nn::Sequential model(nn::Linear(16, 16), nn::BatchNorm1d(16), nn::Linear(16, 16));
  model->eval();
  return model;
}

Bytes bytes_of(const nn::Sequential& model) {
  Bytes bytes = 0;
  for (const at::Tensor& tensor : model->parameters()) bytes += tensor.nbytes();
  for (const at::Tensor& tensor : model->buffers()) bytes += tensor.nbytes();
  return bytes;
}

Bytes used(const nn::Sequential& model) {
  Bytes bytes = 0;
  for (const TierUse& tier : dispatch_report(model).tiers) bytes += tier.used;
  return bytes;
}

// Without a GPU the disk takes the place of RAM, and RAM that of the GPU.
class OffloadHooks : public testing::Test {
 protected:
  OffloadHooks() {
    torch::manual_seed(8);
    first = make_model();
    second = make_model();
    x = torch::randn({4, 16});
    y = first->forward(x);
    z = second->forward(y);
  }

  at::NoGradGuard no_gradients;
  test::TemporaryFolder folder;
  nn::Sequential first{nullptr}, second{nullptr};
  at::Tensor x, y, z;
};

TEST_F(OffloadHooks, BringAModelWithItsFirstUseAndTakeItAwayWithTheNextOnes) {
  auto [one, hook1] = disk_offload_with_hook(first, folder.path(), c10::kCPU);
  auto [two, hook2] = disk_offload_with_hook(second, folder.path(), c10::kCPU, hook1);
  EXPECT_EQ(device_map(first), kOnDisk);
  EXPECT_EQ(used(first), 0U) << "nothing is taken before it is needed";

  EXPECT_TRUE(one(x).equal(y));
  EXPECT_EQ(device_map(first), kInRam);
  EXPECT_GE(used(first), bytes_of(first));
  EXPECT_EQ(device_map(second), kOnDisk);

  EXPECT_TRUE(two(y).equal(z));
  EXPECT_EQ(device_map(first), kOnDisk);
  EXPECT_EQ(used(first), 0U);
  EXPECT_EQ(device_map(second), kInRam);

  hook2.offload();
  EXPECT_EQ(device_map(second), kOnDisk);
  EXPECT_EQ(used(second), 0U);
  hook2.offload();
  EXPECT_TRUE(two(one(x)).equal(z)) << "all over again";
}

TEST_F(OffloadHooks, MoveAModelOnceHoweverOftenItIsCalled) {
  auto [one, hook1] = disk_offload_with_hook(first, folder.path(), c10::kCPU);
  auto [two, hook2] = disk_offload_with_hook(second, folder.path(), c10::kCPU, hook1);
  one(x);
  for (int step = 0; step < 20; ++step) ASSERT_TRUE(two(y).equal(z));
  const DispatchReport report = dispatch_report(second);
  EXPECT_EQ(report.bytes_moved, bytes_of(second));
  EXPECT_EQ(report.unplanned, 0U);
  EXPECT_EQ(report.tiers[0].peak, report.tiers[0].planned);
}

TEST_F(OffloadHooks, WorkForDirectCallsAndOnlyOnThePreviousModel) {
  nn::Sequential third = make_model();
  const at::Tensor end = third->forward(z);
  const OffloadHook hook1(first, c10::kCPU, {}, folder.path());
  const OffloadHook hook2(second, c10::kCPU, hook1, folder.path());
  const OffloadHook hook3(third, c10::kCPU, hook2, folder.path());
  EXPECT_TRUE(third->forward(second->forward(first->forward(x))).equal(end));
  EXPECT_EQ(device_map(first), kOnDisk);
  EXPECT_EQ(device_map(second), kOnDisk);
  EXPECT_EQ(device_map(third), kInRam);
  EXPECT_TRUE(first->forward(x).equal(y));
  EXPECT_EQ(device_map(third), kInRam) << "the first has no previous one";
  // An op on weights of both: they are there together for it, and neither waits for the other.
  const at::Tensor sum = first->parameters()[0] + second->parameters()[0];
  EXPECT_EQ(device_map(first), kInRam);
  EXPECT_EQ(device_map(second), kInRam);
  EXPECT_TRUE(sum.equal(first->parameters()[0].clone().add_(second->parameters()[0].clone())));
  EXPECT_EQ(device_map(first), kOnDisk) << "the second was used alone";
}

TEST_F(OffloadHooks, KeepWhatWasWrittenWhileTheModelWasIn) {
  const OffloadHook hook(first, c10::kCPU, {}, folder.path());
  nn::Sequential plain = make_model();
  for (std::size_t i = 0; i < plain->parameters().size(); ++i) {
    plain->parameters()[i].copy_(first->parameters()[i]).mul_(2);
    first->parameters()[i].mul_(2);
  }
  first->train();
  plain->train();
  EXPECT_TRUE(first->forward(x).equal(plain->forward(x)));
  hook.offload();
  first->eval();
  plain->eval();
  EXPECT_TRUE(first->forward(x).equal(plain->forward(x))) << "running statistics, too";
}

TEST_F(OffloadHooks, MakeAnOrdinaryModelWhenTheyAreRemoved) {
  OffloadHook hook(first, c10::kCPU, {}, folder.path());
  test::expect_error(ErrorKind::kUsage, HasSubstr("dispatched already"),
                     [&] { cpu_offload(first); });
  hook.remove();
  EXPECT_TRUE(device_map(first).empty());
  EXPECT_TRUE(first->forward(x).equal(y));
  first->to(torch::kDouble);
  hook.offload();
  hook.remove();
  EXPECT_EQ(first->parameters()[0].dtype(), torch::kDouble);
  // The chain goes on without it.
  const OffloadHook next(second, c10::kCPU, hook, folder.path());
  EXPECT_TRUE(second->forward(y).equal(z));
}

TEST_F(OffloadHooks, DoNothingForAModelThatIsWhereItRuns) {
  const void* const memory = first->parameters()[0].const_data_ptr();
  auto [one, hook] = cpu_offload_with_hook(first, c10::kCPU);
  EXPECT_TRUE(one(x).equal(y));
  EXPECT_TRUE(device_map(first).empty()) << "nothing is intercepted";
  hook.offload();
  hook.remove();
  EXPECT_EQ(first->parameters()[0].const_data_ptr(), memory);
}

TEST_F(OffloadHooks, OutliveTheirModels) {
  OffloadHook hook1;
  {
    nn::Sequential gone = make_model();
    hook1 = OffloadHook(gone, c10::kCPU, {}, folder.path());
    gone->forward(x);
  }
  const OffloadHook hook2(second, c10::kCPU, hook1, folder.path());
  EXPECT_TRUE(second->forward(y).equal(z));
  hook1.remove();
  EXPECT_TRUE(second->forward(y).equal(z));
}

TEST_F(OffloadHooks, MayBeUsedWhileOthersRunTheModels) {
  const OffloadHook hook1(first, c10::kCPU, {}, folder.path());
  const OffloadHook hook2(second, c10::kCPU, hook1, folder.path());
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    threads.reserve(3);
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        const at::NoGradGuard none;
        for (int i = 0; i < 40; ++i) wrong += !second->forward(first->forward(x)).equal(z);
      });
    }
    for (int i = 0; i < 100; ++i) hook2.offload();
  }
  EXPECT_EQ(wrong, 0);
}

TEST_F(OffloadHooks, GiveGradientsThroughAChain) {
  const at::AutoGradMode gradients(true);
  const auto run = [&] {
    first->zero_grad();
    second->zero_grad();
    second->forward(first->forward(x)).pow(2).sum().backward();
    return first->parameters()[0].grad().clone();
  };
  const at::Tensor expected = run();
  const OffloadHook hook1(first, c10::kCPU, {}, folder.path());
  const OffloadHook hook2(second, c10::kCPU, hook1, folder.path());
  EXPECT_TRUE(run().equal(expected));
}

}  // namespace
}  // namespace haul
