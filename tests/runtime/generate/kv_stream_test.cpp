// Keys and values that lie apart from where they are looked at: what they are when they lie there.

#include "runtime/generate/kv_stream.h"

#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "runtime/generate/kv_cache.h"
#include "runtime/generate/kv_room.h"
#include "tests/support/small_models.h"

namespace haul::runtime {
namespace {

constexpr std::int64_t kCapacity = 20;
constexpr std::int64_t kSequences = 5;

// As late as a GPU's copies may be: they are done when work is to come after them.
class LateLink final : public KvLink {
 public:
  explicit LateLink(Bytes* copied) : copied_(copied) {}

  void after_work() override { work_since_ = false; }
  void copy(void* to, Bytes to_step, const void* from, Bytes from_step, Bytes width,
            Bytes count) override {
    EXPECT_FALSE(work_since_) << "a copy that does not wait for who may still look at the slot";
    *copied_ += width * count;
    waiting_.emplace_back([=] {
      for (Bytes i = 0; i < count; ++i) {
        std::memcpy(static_cast<std::byte*>(to) + i * to_step,
                    static_cast<const std::byte*>(from) + i * from_step, width);
      }
    });
  }
  GpuPoint point() override { return {}; }
  void wait(const GpuPoint& /*point*/) override {
    settle();
    work_since_ = true;
  }
  void settle() override {
    for (const auto& copy : std::exchange(waiting_, {})) copy();
  }

 private:
  Bytes* copied_;
  bool work_since_ = false;
  std::vector<std::function<void()>> waiting_;
};

struct Caches {
  explicit Caches(std::size_t layers)
      : here(std::vector<std::int64_t>(layers), kCapacity),
        away(std::vector<std::int64_t>(layers), kCapacity, nullptr,
             std::make_unique<LateLink>(&copied)) {}

  Bytes copied = 0;
  ModelCache here;
  ModelCache away;
};

class KvStreamTest : public testing::TestWithParam<const char*> {
 protected:
  KvStreamTest() {
    for (const test::SmallModel& small : test::kSmallModels) {
      if (std::string(small.name) == GetParam()) model = test::made_model(small.config);
    }
  }

  // What both caches make of a pass.
  void expect_same(Caches& caches, models::Inputs inputs) {
    std::vector<at::Tensor> results;
    for (ModelCache* const cache : {&caches.here, &caches.away}) {
      cache->look_at(inputs.first_row, inputs.sequences);
      inputs.cache = cache;
      results.push_back(model->forward(inputs));
      cache->advance(inputs.ids.size(1));
    }
    EXPECT_TRUE(results[0].equal(results[1])) << "after " << caches.here.length() << " tokens";
  }

  const at::NoGradGuard no_gradients;
  const at::Tensor ids = at::randint(3, 2900, {kSequences, kCapacity}, at::kLong);
  std::shared_ptr<models::Model> model;
};

INSTANTIATE_TEST_SUITE_P(, KvStreamTest, testing::Values("gpt2", "llama", "qwen3", "bloom"),
                         [](const auto& of) { return std::string(of.param); });

TEST_P(KvStreamTest, GivesTheBitsOfKeysThatLieWhereTheyAreLookedAt) {
  Caches caches(4);
  expect_same(caches, {ids.narrow(1, 0, 7)});
  expect_same(caches, {ids.narrow(1, 7, 3)});
  for (std::int64_t i = 10; i < kCapacity; ++i) expect_same(caches, {ids.narrow(1, i, 1)});
}

// Of a few sequences all tokens come before the next few have any.
TEST_P(KvStreamTest, TakesPromptsOfAFewSequencesAtATime) {
  Caches caches(4);
  for (std::int64_t row = 0; row < kSequences; row += 2) {
    const std::int64_t rows = std::min<std::int64_t>(2, kSequences - row);
    for (std::int64_t at = 0; at < 9; at += 6) {
      models::Inputs some{ids.narrow(0, row, rows).narrow(1, at, at == 0 ? 6 : 3)};
      some.first_row = row;
      some.sequences = kSequences;
      expect_same(caches, some);
    }
  }
  ASSERT_EQ(caches.away.length(), 9);
  for (std::int64_t i = 9; i < 13; ++i) expect_same(caches, {ids.narrow(1, i, 1)});
  const at::Tensor rows = at::tensor({4L, 4L, 0L, 1L, 3L}, at::kLong);
  caches.here.reorder(rows);
  caches.away.reorder(rows);
  for (std::int64_t i = 13; i < 16; ++i) expect_same(caches, {ids.narrow(1, i, 1)});
  caches.here.repeat(2);
  caches.away.repeat(2);
  for (std::int64_t i = 16; i < kCapacity; ++i) {
    expect_same(caches, {ids.narrow(1, i, 1).repeat_interleave(2, 0)});
  }
}

TEST_P(KvStreamTest, BringsEachLayerOnceForAPassAndTakesBackWhatIsNew) {
  Caches caches(4);
  expect_same(caches, {ids.narrow(1, 0, 8)});
  const Bytes of_a_token = caches.here.bytes() / kCapacity;
  // What was added, and the first layer for the next pass.
  EXPECT_EQ(caches.copied, (8 + 8 / 4) * of_a_token);
  for (std::int64_t i = 8; i < 12; ++i) {
    const Bytes before = caches.copied;
    expect_same(caches, {ids.narrow(1, i, 1)});
    const auto past = static_cast<Bytes>(i);
    EXPECT_EQ(caches.copied - before, (past * 3 + past + 1 + 4) * of_a_token / 4);
  }
}

// Sequences that become more, in no more room than a plan gives: all of it is free in between.
TEST(KvStream, OfBeamsFitsIntoWhatWasPlanned) {
  constexpr std::int64_t kLayers = 4;
  constexpr std::int64_t kOne = 2 * 3 * 4 * kCapacity * sizeof(float);  // of a sequence in a layer
  for (const std::int64_t beams : {2, 3, 5, 8}) {
    Plan plan;
    plan.devices.emplace_back();
    plan.devices.back().device = kCpuDevice;
    plan.devices.back().kv = static_cast<Bytes>(beams * kOne * (kLayers + 2));
    const auto store = std::make_shared<WeightStore>(
        DeviceMap{{"", kCpuDevice}}, c10::Device(c10::kCPU),
        parse_max_memory("cpu=" + std::to_string(plan.devices.back().kv)));
    KvRoom room(plan, *store);
    Bytes copied = 0;
    ModelCache cache(std::vector<std::int64_t>(kLayers), kCapacity, &room,
                     std::make_unique<LateLink>(&copied));
    for (std::int64_t token = 0; token < kCapacity; ++token) {
      if (token == 3) cache.repeat(beams);
      const at::Tensor keys = at::randint(0, 9, {token < 3 ? 1 : beams, 3, 1, 4}).to(at::kFloat);
      for (std::int64_t layer = 0; layer < kLayers; ++layer) {
        EXPECT_NO_THROW(cache.extend(layer, {keys, keys}, true)) << beams << " beams";
      }
      cache.advance(1);
    }
  }
}

TEST(KvStream, HoldsLayersThatFitIntoItsSlots) {
  for (const std::size_t layers : {1, 2}) {
    Caches caches(layers);
    std::int64_t next = 0;
    for (std::int64_t token = 0; token < 6; ++token) {
      for (std::size_t layer = 0; layer < layers; ++layer) {
        const at::Tensor keys = at::randint(0, 1000, {2, 3, 1, 4}).to(at::kFloat);
        const auto index = static_cast<std::int64_t>(layer);
        const models::KeysValues here = caches.here.extend(index, {keys, -keys}, true);
        const models::KeysValues away = caches.away.extend(index, {keys, -keys}, true);
        EXPECT_TRUE(here.keys.equal(away.keys) && here.values.equal(away.values)) << token;
      }
      caches.here.advance(1);
      caches.away.advance(1);
      ++next;
    }
    EXPECT_EQ(caches.copied, static_cast<Bytes>(next) * caches.here.bytes() / kCapacity);
  }
}

}  // namespace
}  // namespace haul::runtime
