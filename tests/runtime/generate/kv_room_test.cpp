#include "runtime/generate/kv_room.h"

#include <array>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/generate/kv_cache.h"
#include "tests/support/expect_error.h"

namespace haul::runtime {
namespace {

using models::KeysValues;

constexpr Bytes kBudget = 100'000;

class KvRoomTest : public testing::Test {
 protected:
  static Plan plan_of(Bytes kv) {
    Plan plan;
    plan.devices.emplace_back();
    plan.devices.back().device = kCpuDevice;
    plan.devices.back().kv = kv;
    return plan;
  }
  // 40 bytes a token.
  static at::Tensor take(KvRoom& room, std::int64_t tokens) {
    const std::array<std::int64_t, 4> sizes = {1, 1, tokens, 10};
    return room.take(sizes, at::TensorOptions().dtype(at::kFloat).device(at::kCPU));
  }
  Ledger& ledger() { return store->ledger(c10::Device(c10::kCPU)); }

  std::shared_ptr<WeightStore> store =
      std::make_shared<WeightStore>(DeviceMap{{"", kCpuDevice}}, c10::Device(c10::kCPU),
                                    parse_max_memory("cpu=" + std::to_string(kBudget)));
};

TEST_F(KvRoomTest, IsTakenAtOnceAndServesOneCacheAfterAnother) {
  KvRoom room(plan_of(2 * 3 * 10 * 4 * 4), *store);
  EXPECT_EQ(ledger().used(Tag::kKv), 2U * 3 * 10 * 4 * 4);
  for (int again = 0; again < 3; ++again) {
    ModelCache cache({0}, 10, &room);
    const at::Tensor ones = at::full({1, 3, 10, 4}, 1.0F + static_cast<float>(again));
    const KeysValues seen = cache.extend(0, {ones, ones + 1}, true);
    EXPECT_TRUE(seen.keys.equal(ones));
    EXPECT_TRUE(seen.values.equal(ones + 1));
    EXPECT_EQ(cache.bytes(), ledger().used(Tag::kKv));
  }
  EXPECT_EQ(ledger().peak(), 2U * 3 * 10 * 4 * 4);
}

TEST_F(KvRoomTest, MoreThanWasPlannedIsCountedAndGivenBack) {
  KvRoom room(plan_of(1'000), *store);
  {
    const at::Tensor inside = take(room, 10);
    const at::Tensor outside = take(room, 100);
    EXPECT_EQ(ledger().used(Tag::kKv), 1'000U + 4'000);
    outside.fill_(3);
    inside.fill_(4);
    EXPECT_EQ(outside.min().item<float>(), 3);
  }
  EXPECT_EQ(ledger().used(Tag::kKv), 1'000U);
}

TEST_F(KvRoomTest, WhatTheBudgetDoesNotHoldIsAnErrorThatSaysWhy) {
  KvRoom room(plan_of(1'000), *store);
  test::expect_error(ErrorKind::kResource,
                     testing::AllOf(testing::HasSubstr("KV cache"), testing::HasSubstr("RAM"),
                                    testing::HasSubstr("planned for")),
                     [&] { take(room, 10'000); });
  EXPECT_EQ(ledger().used(Tag::kKv), 1'000U);
}

TEST_F(KvRoomTest, ATensorMayOutliveIt) {
  at::Tensor left;
  {
    KvRoom room(plan_of(1'000), *store);
    left = take(room, 10);
  }
  left.fill_(1);
  EXPECT_EQ(left.sum().item<float>(), 100);
  EXPECT_EQ(ledger().used(Tag::kKv), 1'000U);
  left.reset();
  EXPECT_EQ(ledger().used(Tag::kKv), 0U);
}

}  // namespace
}  // namespace haul::runtime
