// In a process of its own, because it limits the process's memory.

#include <sys/resource.h>

#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "haul/torch/dispatch.h"
#include "haul/torch/empty_weights.h"
#include "tests/support/temporary_folder.h"

namespace haul {
namespace {

namespace nn = torch::nn;

constexpr int kLayers = 64;
constexpr int kWidth = 1024;
constexpr Bytes kModel = Bytes{kLayers} * kWidth * kWidth * 4;
constexpr Bytes kAllowed = kModel / 4;

// A line of /proc/self/status, in bytes.
Bytes status(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key + ":")) return std::stoull(line.substr(key.size() + 1)) * 1024;
  }
  ADD_FAILURE() << "no " << key;
  return 0;
}

// The peak of resident memory begins anew.
void forget_peak() {
  std::ofstream("/proc/self/clear_refs") << 5;
}

nn::Sequential chain(int layers) {
  nn::Sequential model;
  for (int i = 0; i < layers; ++i) {
    model->push_back(nn::Linear(nn::LinearOptions(kWidth, kWidth).bias(false)));
  }
  return model;
}

at::Tensor input() {
  return torch::full({1, kWidth}, 0.5);
}

// Writes the model and gives its output; afterwards its memory is free again.
at::Tensor write_checkpoint(const std::filesystem::path& folder) {
  torch::manual_seed(4);
  nn::Sequential model = chain(kLayers);
  save_model(model, folder, 1'000'000'000);
  const at::NoGradGuard no_gradients;
  return model->forward(input());
}

TEST(BiggerThanMemory, AModelOfFourTimesTheAllowedRamRunsInIt) {
  const test::TemporaryFolder folder(std::filesystem::current_path());
  const at::Tensor expected = write_checkpoint(folder.path());
  const at::NoGradGuard no_gradients;
  {
    // What libtorch and the readers take by themselves, before anything is counted.
    nn::Sequential small = chain(2);
    const test::TemporaryFolder offload(std::filesystem::current_path());
    disk_offload(small, offload.path());
    small->forward(input());
  }
  // Of memory that is asked for: the stacks of the threads are not touched, yet they count there.
  constexpr Bytes kStacks = 8 * 8 * kMiB;
  const rlimit limit = {status("VmData") + kAllowed + kStacks, RLIM_INFINITY};
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &limit), 0);
  EXPECT_THROW(torch::empty({static_cast<std::int64_t>(kModel)}, torch::kByte), c10::Error)
      << "the limit holds";

  const Bytes before = status("VmRSS") - status("RssFile");
  forget_peak();
  nn::Sequential model = [] {
    const EmptyWeights scope;
    return chain(kLayers);
  }();
  LoadOptions options;
  options.max_memory = parse_max_memory("cpu=" + std::to_string(kAllowed));
  load_checkpoint_in_model(model, folder.path(), MapMode::kAuto, options);
  const Bytes loaded_peak = status("VmHWM") - status("RssFile");
  for (int pass = 0; pass < 3; ++pass) {
    ASSERT_TRUE(model->forward(input()).equal(expected)) << pass;
  }
  const Bytes peak = status("VmHWM") - status("RssFile");

  const DispatchReport report = dispatch_report(model);
  ASSERT_EQ(report.tiers.size(), 1U);
  const TierUse& ram = report.tiers[0];
  EXPECT_LE(ram.planned, kAllowed);
  EXPECT_LE(static_cast<double>(ram.peak), 1.03 * static_cast<double>(ram.planned));
  EXPECT_GE(static_cast<double>(ram.peak), 0.97 * static_cast<double>(ram.planned));
  EXPECT_EQ(report.unplanned, 0U);
  EXPECT_LE(static_cast<double>(peak - before), 1.05 * static_cast<double>(kAllowed));
  constexpr Bytes kReadBuffer = 8 * kMiB;
  EXPECT_LE(loaded_peak - before, ram.planned + kReadBuffer);
  EXPECT_GT(report.bytes_moved, kModel) << "most of it came from disk, again and again";
  RecordProperty("planned", std::to_string(ram.planned));
  RecordProperty("tier_peak", std::to_string(ram.peak));
  RecordProperty("process_peak", std::to_string(peak - before));
  std::printf("planned %.1f MB, tier's peak %.1f MB, process's peak %.1f MB, allowed %.1f MB\n",
              static_cast<double>(ram.planned) / 1e6, static_cast<double>(ram.peak) / 1e6,
              static_cast<double>(peak - before) / 1e6, static_cast<double>(kAllowed) / 1e6);
}

}  // namespace
}  // namespace haul
