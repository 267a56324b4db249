#include <gtest/gtest.h>
#include <torch/torch.h>

#include "haul/torch/align_module_device.h"
#include "haul/torch/offload_hook.h"
#include "tests/support/temporary_folder.h"

namespace haul {
namespace {

namespace nn = torch::nn;

const at::Device kGpu(at::kCUDA, 0);
const DeviceMap kInRam{{"", kCpuDevice}};
const DeviceMap kOnGpu{{"", gpu(0)}};

// A linear layer and a shortcut around another: inputs have to be on the GPU from the start.
struct NetImpl : nn::Cloneable<NetImpl> {
  NetImpl() { reset(); }
  void reset() override {
    linear = register_module("linear", nn::Linear(512, 512));
    norm = register_module("norm", nn::BatchNorm1d(512));
    eval();
  }
  at::Tensor forward(const at::Tensor& x) { return x + norm(linear(x)); }
  nn::Linear linear{nullptr};
  nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Net);

Bytes used_on_gpu(const Net& net) {
  for (const TierUse& tier : dispatch_report(net).tiers) {
    if (tier.tier == "GPU 0") return tier.used;
  }
  return 0;
}

class GpuOffloadHooks : public testing::Test {
 protected:
  GpuOffloadHooks() {
    torch::manual_seed(9);
    first = Net();
    second = Net();
    x = torch::randn({4, 512});
    Net copy1 = std::dynamic_pointer_cast<NetImpl>(first->clone());
    Net copy2 = std::dynamic_pointer_cast<NetImpl>(second->clone());
    copy1->to(kGpu);
    copy2->to(kGpu);
    y = copy1->forward(x.to(kGpu));
    z = copy2->forward(y);
  }

  at::NoGradGuard no_gradients;
  Net first{nullptr}, second{nullptr};
  at::Tensor x, y, z;
};

TEST_F(GpuOffloadHooks, MoveModelsBetweenRamAndTheGpu) {
  auto [one, hook1] = cpu_offload_with_hook(first, kGpu);
  auto [two, hook2] = cpu_offload_with_hook(second, kGpu, hook1);
  EXPECT_EQ(device_map(first), kInRam);
  EXPECT_EQ(used_on_gpu(first), 0U);
  const at::Tensor middle = one(x);
  EXPECT_TRUE(middle.is_cuda()) << "outputs stay on the device";
  EXPECT_TRUE(middle.equal(y));
  EXPECT_EQ(device_map(first), kOnGpu);
  for (int step = 0; step < 5; ++step) ASSERT_TRUE(two(middle).equal(z));
  EXPECT_EQ(device_map(first), kInRam);
  EXPECT_EQ(used_on_gpu(first), 0U);
  EXPECT_EQ(device_map(second), kOnGpu);
  Bytes bytes = 0;
  for (const at::Tensor& tensor : second->parameters()) bytes += tensor.nbytes();
  for (const at::Tensor& tensor : second->buffers()) bytes += tensor.nbytes();
  EXPECT_EQ(dispatch_report(second).bytes_moved, bytes) << "once, for five calls";
  hook2.offload();
  EXPECT_EQ(device_map(second), kInRam);
  EXPECT_EQ(used_on_gpu(second), 0U);
  EXPECT_TRUE(two(one(x)).equal(z));
  hook2.remove();
  EXPECT_TRUE(second->linear->weight.is_cuda()) << "where it was";
  hook1.remove();
  EXPECT_TRUE(first->linear->weight.is_cpu());
}

TEST_F(GpuOffloadHooks, KeepWhatWasWrittenOnTheGpu) {
  const OffloadHook hook(first, kGpu, {});
  const Bytes before = dispatch_report(first).tiers.back().used;
  first->linear->weight.mul_(2);
  EXPECT_EQ(dispatch_report(first).tiers.back().used, before) << "in its place in RAM";
  const at::Tensor expected = first->forward(x.to(kGpu));
  hook.offload();
  EXPECT_TRUE(first->forward(x.to(kGpu)).equal(expected));
}

TEST_F(GpuOffloadHooks, AScopeBringsAWeightToEitherDeviceAndKeepsWhatIsWritten) {
  const at::Tensor weight = first->linear->weight.clone();
  const test::TemporaryFolder folder;
  for (const Device home : {kCpuDevice, kDiskDevice}) {
    Net net = std::dynamic_pointer_cast<NetImpl>(first->clone());
    DispatchOptions options;
    options.main_device = kGpu;
    options.offload_folder = folder.path();
    place_model(net, DeviceMap{{"", home}}, options);
    {
      const AlignModuleDevice scope(net->linear);
      EXPECT_TRUE(net->linear->weight.is_cuda());
      EXPECT_TRUE(net->linear->weight.cpu().equal(weight));
    }
    {
      const AlignModuleDevice scope(net, c10::kCPU);
      EXPECT_TRUE(net->linear->weight.is_cpu());
      EXPECT_TRUE(net->norm->running_mean.is_cpu());
      net->linear->weight.data_ptr<float>()[3] = 42;
    }
    EXPECT_EQ(net->linear->weight[0][3].item<float>(), 42);
    EXPECT_TRUE(net->norm->running_mean.is_cuda());
  }
}

}  // namespace
}  // namespace haul
