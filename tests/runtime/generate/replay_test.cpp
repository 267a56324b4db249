// Passes as a GPU records them, on the CPU: what they compute must not depend on how they get to
// know how many tokens there are.

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include "runtime/generate/kv_cache.h"
#include "runtime/generate/kv_room.h"
#include "tests/support/expect_error.h"
#include "tests/support/small_models.h"

namespace haul::runtime {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::int64_t kCapacity = 16;

at::Tensor pass(models::Model& model, ModelCache& cache, const at::Tensor& ids, bool replayed) {
  models::Inputs inputs{ids};
  inputs.cache = &cache;
  if (replayed) {
    const at::Tensor past = at::full({1}, cache.length(), at::kLong);
    cache.set_past(past);
    inputs.positions = past.view({1, 1});
  }
  const at::Tensor result = model.forward(inputs);
  cache.set_past({});
  cache.advance(ids.size(1));
  return result;
}

TEST(Replay, GivesTheLogitsOfOtherPasses) {
  const at::NoGradGuard no_gradients;
  // Fresh memory is zero, as a GPU's caches are: a mask hides every number but NaN.
  const auto store = std::make_shared<WeightStore>(DeviceMap{{"", kCpuDevice}},
                                                   c10::Device(c10::kCPU), MaxMemory{});
  KvRoom room(Plan{}, *store);
  int found = 0;
  for (const test::SmallModel& small : test::kSmallModels) {
    SCOPED_TRACE(small.name);
    const auto model = test::made_model(small.config);
    if (!model->can_be_replayed()) continue;
    ++found;
    std::vector<std::int64_t> windows = model->windows();
    windows.resize(4);
    ModelCache plain(windows, kCapacity, &room);
    ModelCache replayed(windows, kCapacity, &room);
    if (!replayed.keeps_all()) continue;
    const at::Tensor ids = at::randint(3, 2900, {2, kCapacity}, at::kLong);
    pass(*model, plain, ids.narrow(1, 0, 5), false);
    pass(*model, replayed, ids.narrow(1, 0, 5), false);
    for (std::int64_t i = 5; i < kCapacity; ++i) {
      const at::Tensor token = ids.narrow(1, i, 1);
      EXPECT_TRUE(at::allclose(pass(*model, replayed, token, true),
                               pass(*model, plain, token, false), 1e-4, 1e-5))
          << "token " << i;
    }
    EXPECT_EQ(replayed.addresses().size(), 8U);
    test::expect_error(ErrorKind::kUsage, AllOf(HasSubstr("17 tokens"), HasSubstr("room for 16")),
                       [&] { replayed.set_past(at::full({1}, 16, at::kLong)); });
  }
  EXPECT_GE(found, 6);
}

TEST(Replay, IsNotForLayersThatForget) {
  EXPECT_TRUE(ModelCache({0, 16}, 16).keeps_all());
  EXPECT_FALSE(ModelCache({0, 15}, 16).keeps_all());
}

}  // namespace
}  // namespace haul::runtime
