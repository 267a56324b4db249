#include <atomic>
#include <cerrno>
#include <fstream>
#include <mutex>
#include <random>

#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "haul/error.h"
#include "haul/torch/dispatch.h"
#include "runtime/dispatch/weight_store.h"
#include "tests/support/temporary_folder.h"

namespace haul {
namespace {

namespace nn = torch::nn;

long resident_kilobytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmRSS:")) return std::stol(line.substr(6));
  }
  return 0;
}

// Ten thousand forwards of a model that is on disk, with reads that fail or come short at random:
// each gives the right output or an Error, and nothing is lost or left behind.
TEST(Faults, TenThousandForwardsOverAFailingDisk) {
  torch::manual_seed(6);
  nn::Sequential model;
  for (int i = 0; i < 6; ++i) model->push_back(nn::Linear(96, 96));
  const at::Tensor input = torch::randn({2, 96});
  const at::NoGradGuard no_gradients;
  const at::Tensor expected = model->forward(input);

  std::mutex mutex;
  std::mt19937 dice(11);
  std::atomic<bool> faulty = false;
  runtime::disk_options().fault = [&](int, Bytes, Bytes) -> std::optional<int> {
    if (!faulty) return std::nullopt;
    const std::lock_guard lock(mutex);
    const auto roll = dice() % 1000;
    if (roll < 50) return EIO;
    if (roll < 150) return 0;  // comes short
    return std::nullopt;
  };
  const test::TemporaryFolder folder;
  DispatchOptions options;
  options.slots = 120'000;  // two weights and their biases, of six
  disk_offload(model, folder.path(), options);
  runtime::disk_options() = {};

  int wrong = 0;
  int failed = 0;
  long settled = 0;
  faulty = true;
  for (int i = 0; i < 10'000; ++i) {
    try {
      wrong += !model->forward(input).equal(expected);
    } catch (const Error&) {
      ++failed;
    }
    if (i == 2000) settled = resident_kilobytes();
  }
  faulty = false;
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(failed, 50) << "the faults were felt";
  EXPECT_LT(failed, 5000) << "and most forwards came through";
  EXPECT_LT(resident_kilobytes() - settled, 4096) << "nothing piles up";
  EXPECT_TRUE(model->forward(input).equal(expected));
  const DispatchReport report = dispatch_report(model);
  EXPECT_EQ(report.unplanned, 0U);
  EXPECT_EQ(report.tiers[0].used, report.tiers[0].peak);
}

}  // namespace
}  // namespace haul
