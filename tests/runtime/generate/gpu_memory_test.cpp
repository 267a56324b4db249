// A GPU whose memory somebody else takes: it is told with the plan's numbers, and the process goes
// on when there is memory again.

#include <c10/cuda/CUDACachingAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "haul/torch/model.h"
#include "runtime/tiers/gpu.h"
#include "tests/support/expect_error.h"
#include "tests/support/gpu_families.h"

namespace haul {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Takes all of a GPU's memory but for crumbs.
class Hog {
 public:
  Hog() {
    c10::cuda::CUDACachingAllocator::emptyCache();
    for (Bytes piece = 64 * kGiB; piece >= kMiB; piece /= 2) {
      try {
        for (;;) taken_.push_back(runtime::allocate_on_gpu(0, piece));
      } catch (const Error&) {
        continue;  // a smaller one
      }
    }
  }
  Hog(const Hog&) = delete;
  Hog& operator=(const Hog&) = delete;
  ~Hog() {
    for (void* const memory : taken_) runtime::free_on_gpu(0, memory);
  }

 private:
  std::vector<void*> taken_;
};

TEST(GpuMemory, ThatIsNotThereIsToldAndTheProcessGoesOn) {
  const test::TemporaryFolder folder{std::filesystem::current_path()};
  test::write_model(folder.path(), test::kSmallModels[2].config);
  ModelOptions options;
  options.log = [](const std::string&) {};
  options.context = 96;
  options.batch = 8;
  options.max_memory = parse_max_memory("0=10GB");
  test::write_gpu_profile(folder.path() / "profile.json", 1);
  const auto load = [&] { return load_model(folder.path().string(), options); };
  GenerateOptions generate;
  generate.temperature = 0;
  generate.max_new_tokens = 12;
  // So many that torch has to ask the GPU for their activations.
  const std::vector<std::vector<TokenId>> prompts(8, std::vector<TokenId>(80, 7));
  const auto ids_of = [&](LoadedModel& model) {
    std::vector<std::vector<TokenId>> ids;
    for (const Generated& one : model.generate_batch(prompts, generate)) ids.push_back(one.ids);
    return ids;
  };
  const auto told = [&](const Plan& plan) {
    const PlanDevice& device = test::gpu_of(plan);
    return AllOf(HasSubstr(folder.path().string()),
                 HasSubstr("GPU 0: planned were " + format_bytes(device.used()) + " of " +
                           format_bytes(*device.budget) + ": weights " +
                           format_bytes(device.weights + device.margins)),
                 HasSubstr("slots " + format_bytes(device.slots)), HasSubstr("free"));
  };

  std::vector<std::vector<TokenId>> ids;
  for (const bool resident : {true, false}) {
    SCOPED_TRACE(resident ? "all on the GPU" : "some of it in RAM");
    LoadedModel model = load();
    if (resident) ids = ids_of(model);
    EXPECT_EQ(ids_of(model), ids);
    {
      const Hog hog;
      test::expect_error(ErrorKind::kResource, told(model.plan()), [&] { ids_of(model); });
      test::expect_error(ErrorKind::kResource, told(model.plan()), [&] { load(); });
    }
    EXPECT_EQ(ids_of(model), ids);
    LoadedModel another = load();
    EXPECT_EQ(ids_of(another), ids);
    EXPECT_EQ(another.report().bytes_moved > 0, !resident);
    options.max_memory = {budget(gpu(0), test::budget_without(model.plan(), 0.5)),
                          budget(kCpuDevice, 10 * kGiB)};
  }
}

}  // namespace
}  // namespace haul
