// Weights are read past the page cache where they do not lie there. The next process that loads the
// model finds its files there all the same.

#include <fcntl.h>
#include <unistd.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "haul/torch/dispatch.h"
#include "haul/torch/empty_weights.h"
#include "tests/support/cached_pages.h"
#include "tests/support/temporary_folder.h"

namespace haul {
namespace {

namespace nn = torch::nn;

// Of 64 MiB each.
nn::Sequential two_layers() {
  return nn::Sequential(nn::Linear(4096, 4096), nn::Linear(4096, 4096));
}

class FilesStayCached : public testing::Test {
 protected:
  FilesStayCached() {
    save_model(two_layers(), checkpoint_.path());
    file_ = ::open((checkpoint_.path() / "model.safetensors").c_str(), O_RDONLY);
    test::drop_cached_pages(file_);
  }
  ~FilesStayCached() override { ::close(file_); }

  nn::Sequential load(Device second) {
    nn::Sequential model;
    {
      const EmptyWeights scope;
      model = two_layers();
    }
    LoadOptions options;
    options.offload_folder = folder_.path();
    load_checkpoint_in_model(model, checkpoint_.path(), DeviceMap{{"0", kCpuDevice}, {"1", second}},
                             options);
    return model;
  }

  test::TemporaryFolder checkpoint_{std::filesystem::current_path()};
  test::TemporaryFolder folder_{std::filesystem::current_path()};
  int file_ = -1;
};

TEST_F(FilesStayCached, WhileTheModelIsUsed) {
  const nn::Sequential model = load(kCpuDevice);
  EXPECT_TRUE(test::comes_into_page_cache(file_));
}

TEST_F(FilesStayCached, ButNotWhereWeightsComeFromThemAllTheTime) {
  nn::Sequential model = load(kDiskDevice);
  model->forward(torch::ones({1, 4096}));
  ::usleep(500'000);
  EXPECT_LT(test::cached_pages(file_) * test::page_size(), 64 * kMiB);  // headers, and behind them
}

}  // namespace
}  // namespace haul
