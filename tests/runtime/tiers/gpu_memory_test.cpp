// What the planner is told about GPUs, by the driver's management library, beside what CUDA says.

#include <cstdlib>
#include <memory>

#include <ATen/ops/empty.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "core/base/machine.h"
#include "haul/bytes.h"
#include "runtime/tiers/gpu.h"
#include "tests/support/gpu_hog.h"

namespace haul::runtime {
namespace {

struct CudaFree {
  void operator()(void* memory) const { cudaFree(memory); }
};

Bytes difference(Bytes a, Bytes b) {
  return a > b ? a - b : b - a;
}

// Both read after CUDA has its context, so that both count it.
struct BothViews {
  std::vector<Gpu> cuda;
  std::vector<core::GpuMemory> driver;

  BothViews() : cuda(gpus()), driver(core::read_machine(core::this_os()).gpus) {}
};

TEST(GpuMemory, TheDriverAndCudaAgree) {
  // The driver's library counts by PCI bus, CUDA by speed unless it is told.
  ::setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
  const BothViews views;
  ASSERT_FALSE(views.cuda.empty()) << "this test needs a GPU";
  ASSERT_EQ(views.driver.size(), views.cuda.size());
  for (std::size_t i = 0; i < views.cuda.size(); ++i) {
    const Gpu& cuda = views.cuda[i];
    const core::GpuMemory& driver = views.driver[i];
    SCOPED_TRACE(cuda.name);
    EXPECT_EQ(driver.name, cuda.name);
    EXPECT_TRUE(driver.uuid.starts_with("GPU-")) << driver.uuid;
    // What the driver keeps for itself counts in its total and not in CUDA's.
    EXPECT_LE(cuda.total, driver.total);
    EXPECT_LE(driver.total - cuda.total, driver.total / 50);
    EXPECT_LE(driver.free, driver.total);
    // A budget from the driver must not promise what CUDA does not have.
    EXPECT_LE(difference(driver.free, cuda.free), kGiB / 2);
  }
}

TEST(GpuMemory, BothSeeAnAllocation) {
  ::setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
  ASSERT_FALSE(gpus().empty()) << "this test needs a GPU";
  const BothViews before;
  void* pointer = nullptr;
  ASSERT_EQ(cudaMalloc(&pointer, kGiB), cudaSuccess);
  const std::unique_ptr<void, CudaFree> memory(pointer);
  const BothViews after;
  constexpr Bytes kOthers = 64 * kMiB;  // that other processes may take meanwhile
  EXPECT_LE(difference(before.cuda[0].free, after.cuda[0].free + kGiB), kOthers);
  EXPECT_LE(difference(before.driver[0].free, after.driver[0].free + kGiB), kOthers);
}

TEST(GpuMemory, ThatTorchKeepsForLaterIsThereForUs) {
  at::Tensor used =
      at::empty({std::int64_t{1} << 30}, at::TensorOptions(at::kCUDA).dtype(at::kByte));
  const test::Hog others;
  EXPECT_THROW(allocate_on_gpu(0, kGiB / 2), Error);
  used.reset();
  EXPECT_LT(free_of_gpu(0), kGiB / 2) << "torch gave it back by itself";
  free_on_gpu(0, allocate_on_gpu(0, kGiB / 2));
}

}  // namespace
}  // namespace haul::runtime
