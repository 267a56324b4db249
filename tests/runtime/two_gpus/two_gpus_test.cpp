// Every family on two GPUs, which are one here: what one alone gives, bit by bit.

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include <ATen/ops/arange.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "haul/torch/dispatch.h"
#include "haul/torch/empty_weights.h"
#include "runtime/tiers/gpu.h"
#include "tests/support/gpu_families.h"
#include "tests/support/temporary_folder.h"

namespace haul {
namespace {

using test::Answers;
using test::budget_without;

// Pools that grow in place ask the driver, which knows one GPU.
const int kPools = ::setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:False", 1);

std::int64_t peak_of_pool(c10::DeviceIndex gpu) {
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return c10::cuda::CUDACachingAllocator::getDeviceStats(gpu).allocated_bytes[kAll].peak;
}

class TwoGpus : public test::GpuFamily {
 protected:
  // The default stream is one for both: with others of their own nothing waits by chance.
  TwoGpus() {
    for (c10::DeviceIndex index = 0; index < 2; ++index) {
      c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(false, index));
    }
  }
  ~TwoGpus() override {
    for (c10::DeviceIndex index = 0; index < 2; ++index) {
      c10::cuda::setCurrentCUDAStream(c10::cuda::getDefaultCUDAStream(index));
    }
  }

  Answers of_one() const { return answers(options("0=10GB,cpu=10GB")); }
  // Budgets in which these parts of the weights are missing.
  static std::string budgets(const Answers& one, double first, double second) {
    return "0=" + std::to_string(budget_without(one.plan, first)) +
           ",1=" + std::to_string(budget_without(one.plan, second));
  }
  static void expect_both(const Plan& plan) {
    EXPECT_GT(test::gpu_of(plan, 0).weights, 0U);
    EXPECT_GT(test::gpu_of(plan, 1).weights, 0U);
  }
};

TEST_P(TwoGpus, GiveWhatOneGives) {
  const Answers one = of_one();
  c10::cuda::CUDACachingAllocator::resetPeakStats(1);
  const std::int64_t before = peak_of_pool(1);
  const Answers both = answers(options(budgets(one, 0.4, 0.4)));
  expect_both(both.plan);
  EXPECT_GT(peak_of_pool(1), before) << "nothing was computed there";
  EXPECT_EQ(both.report.bytes_moved, 0U);
  EXPECT_EQ(both.figures.replayed, 0);
  expect_same(both, one);
  expect_planned_peaks(both);
}

TEST_P(TwoGpus, GiveItWithWeightsInRamAndOnDisk) {
  const Answers one = of_one();
  for (const char* others : {",cpu=10GB", ""}) {
    SCOPED_TRACE(*others != '\0' ? "the rest in RAM" : "the rest on disk");
    const Answers both = answers(options(budgets(one, 0.6, 0.7) + others));
    expect_both(both.plan);
    EXPECT_TRUE(is_on(*others != '\0' ? kCpuDevice : kDiskDevice, both.plan));
    EXPECT_GT(both.report.bytes_moved, 0U);
    expect_same(both, one);
    expect_planned_peaks(both);
  }
}

TEST_P(TwoGpus, GiveItWithRamAndDiskBehindThem) {
  constexpr std::array kPlaces = {gpu(0), gpu(1), kCpuDevice, kDiskDevice};
  const Answers one = of_one();
  const auto weights = static_cast<double>(test::gpu_of(one.plan).weights);
  ModelOptions asked = options("0=10GB,1=10GB,cpu=10GB");
  int tried = 0;
  for (const auto& [missing, ram] : {std::pair(0.6, 0.2), std::pair(0.7, 0.3)}) {
    const Plan plan = planned(budgets(one, missing, missing + 0.1) +
                              ",cpu=" + std::to_string(static_cast<Bytes>(ram * weights)));
    const bool everywhere = std::all_of(kPlaces.begin(), kPlaces.end(),
                                        [&](Device place) { return is_on(place, plan); });
    if (!everywhere) continue;  // units are not small beside what is left
    ++tried;
    asked.placement = plan.map;
    const Answers both = answers(asked);
    for (const Device place : kPlaces) EXPECT_TRUE(is_on(place, both.plan)) << to_string(place);
    EXPECT_GT(both.report.bytes_moved, 0U);
    expect_same(both, one);
  }
  EXPECT_GT(tried, 0);
}

TEST_P(TwoGpus, GiveItByAnyMap) {
  const Answers one = of_one();
  for (const MapMode mode : {MapMode::kBalanced, MapMode::kBalancedLow0, MapMode::kSequential}) {
    SCOPED_TRACE(to_string(mode));
    ModelOptions asked = options(budgets(one, 0.4, 0.2));
    asked.placement = mode;
    const Answers both = answers(asked);
    expect_both(both.plan);
    expect_same(both, one);
  }
}

// In float32, beside whose rounding nothing can hide.
class TwoGpusAndTheCpu : public TwoGpus {};

TEST_P(TwoGpusAndTheCpu, GiveAboutWhatOneGives) {
  const Answers one = of_one();
  test::write_cpu_profile(folder.path() / "profile.json");
  const Answers both = answers(options(budgets(one, 0.7, 0.7) + ",cpu=10GB"));
  expect_both(both.plan);
  EXPECT_TRUE(std::any_of(both.plan.steps.begin(), both.plan.steps.end(),
                          [](const PlanStep& step) { return step.runs_on == kCpuDevice; }));
  expect_about(both, one, "0=10GB,cpu=10GB");
}

class TwoGpusHelped : public TwoGpus {};

TEST_P(TwoGpusHelped, GiveAboutWhatOneGives) {
  const Answers one = of_one();
  test::write_gpu_profile(folder.path() / "profile.json", 2.5e10);
  const Answers both = answers(options(budgets(one, 0.6, 0.6) + ",cpu=10GB"));
  expect_both(both.plan);
  EXPECT_GT(both.plan.cpu_share, 0.1);
  EXPECT_GT(both.report.bytes_moved, 0U);
  expect_about(both, one, "0=10GB,cpu=10GB");
  expect_planned_peaks(both);
}

INSTANTIATE_TEST_SUITE_P(All, TwoGpusAndTheCpu,
                         testing::Combine(testing::ValuesIn(test::families()),
                                          testing::Values(Dtype::kF32)),
                         test::family_name);
INSTANTIATE_TEST_SUITE_P(All, TwoGpusHelped, test::in_both_dtypes(test::large_decoders()),
                         test::family_name);
INSTANTIATE_TEST_SUITE_P(All, TwoGpus, test::in_both_dtypes(test::families()), test::family_name);

TEST(TwoGpusOfAMachine, AreBothThere) {
  ASSERT_EQ(kPools, 0);
  const std::vector<runtime::Gpu> found = runtime::gpus();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[1].index, 1);
  EXPECT_EQ(found[1].total, found[0].total);
  const at::Tensor numbers = at::arange(1000, at::TensorOptions(at::Device(at::kCUDA, 1)));
  EXPECT_EQ(numbers.get_device(), 1);
  const at::Tensor copy = numbers.to(at::Device(at::kCUDA, 0));
  EXPECT_EQ(copy.get_device(), 0);
  EXPECT_NE(copy.const_data_ptr(), numbers.const_data_ptr());
  EXPECT_TRUE(copy.cpu().equal(at::arange(1000)));
}

struct HalvesImpl : torch::nn::Module {
  explicit HalvesImpl(c10::ScalarType type = c10::ScalarType::Float) {
    first = register_parameter("first", torch::empty({9'000'000}, type), false);
    second = register_parameter("second", torch::empty({9'000'000}, type), false);
  }
  at::Tensor first;
  at::Tensor second;
};

TEST(TwoGpusOfAMachine, AreFilledThroughWhatRamThereIs) {
  HalvesImpl stored(c10::ScalarType::Half);
  stored.first.copy_(at::arange(stored.first.numel()) % 2039);
  stored.second.copy_(stored.first + 1);
  const test::TemporaryFolder checkpoint;
  save_model(stored, checkpoint.path());
  using Budgets = std::vector<const char*>;
  // What is read as it lies needs a piece for each GPU.
  for (const auto& [dtype, budgets] :
       {std::pair(Dtype::kF16, Budgets{"33700000", "50MB", "64MB"}),
        std::pair(Dtype::kBF16, Budgets{"0MB", "20MB", "33700000", "50MB", "64MB"})}) {
    for (const char* const ram : budgets) {
      SCOPED_TRACE(ram);
      std::shared_ptr<HalvesImpl> model;
      {
        const EmptyWeights scope;
        model = std::make_shared<HalvesImpl>();
      }
      LoadOptions options;
      options.dtype = dtype;
      options.max_memory = parse_max_memory(std::string("0=1GB,1=1GB,cpu=") + ram);
      options.log = [](const std::string&) {};
      load_checkpoint_in_model(*model, checkpoint.path(),
                               DeviceMap{{"first", gpu(0)}, {"second", gpu(1)}}, options);
      EXPECT_EQ(model->first.get_device(), 0);
      EXPECT_EQ(model->second.get_device(), 1);
      EXPECT_TRUE(model->first.cpu().equal(stored.first.to(model->first.scalar_type())));
      EXPECT_TRUE(model->second.cpu().equal(stored.second.to(model->second.scalar_type())));
    }
  }
}

}  // namespace
}  // namespace haul
