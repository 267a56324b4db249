#include "runtime/generate/kv_cache.h"

#include <algorithm>
#include <random>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>

#include "tests/support/expect_error.h"

namespace haul::runtime {
namespace {

using models::KeysValues;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::int64_t kBatch = 3;
constexpr std::int64_t kHeads = 2;
constexpr std::int64_t kHeadSize = 4;

// Keys and values of T tokens, no number of which comes twice.
KeysValues new_tokens(std::int64_t tokens, std::int64_t* next) {
  const std::int64_t count = kBatch * kHeads * tokens * kHeadSize;
  const at::Tensor keys = at::arange(*next, *next + count, at::kFloat)
                              .view({kBatch, tokens, kHeads, kHeadSize})
                              .transpose(1, 2);
  *next += count;
  return {keys, -keys};
}

Bytes bytes_of_tokens(std::int64_t tokens) {
  return static_cast<Bytes>(2 * kBatch * kHeads * tokens * kHeadSize) * sizeof(float);
}

// A layer that forgets nothing.
struct PlainLayer {
  KeysValues all;

  void extend(const KeysValues& added) {
    if (!all.keys.defined()) {
      all = added;
      return;
    }
    all = {at::cat({all.keys, added.keys}, 2), at::cat({all.values, added.values}, 2)};
  }
  KeysValues last(std::int64_t count) const {
    const std::int64_t from = all.keys.size(2) - count;
    return {all.keys.narrow(2, from, count), all.values.narrow(2, from, count)};
  }
  void reorder(const at::Tensor& rows) {
    if (all.keys.defined())
      all = {all.keys.index_select(0, rows), all.values.index_select(0, rows)};
  }
};

bool same(const KeysValues& a, const KeysValues& b) {
  return at::equal(a.keys, b.keys) && at::equal(a.values, b.values);
}

// Later tokens have larger numbers; values go with their keys.
KeysValues in_order(const KeysValues& some) {
  const at::Tensor order = some.keys.select(1, 0).select(-1, 0)[0].argsort();
  return {some.keys.index_select(2, order), some.values.index_select(2, order)};
}

// By the places that the cache gives, where it does and the layer is an odd one.
KeysValues extended(ModelCache& cache, std::int64_t layer, const KeysValues& added, bool ordered) {
  std::optional<KeysValues> places;
  if (layer % 2 == 1) places = cache.places(layer, added);
  if (!places) return cache.extend(layer, added, ordered);
  const std::int64_t tokens = added.keys.size(2);
  const std::int64_t first = places->keys.size(2) - tokens;
  places->keys.narrow(2, first, tokens).copy_(added.keys);
  places->values.narrow(2, first, tokens).copy_(added.values);
  return *places;
}

class CacheTest : public testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(, CacheTest, testing::Bool(),
                         [](const auto& way) { return way.param ? "Ordered" : "Unordered"; });

TEST_P(CacheTest, GivesWhatAPlainOneKeepsOverRandomPasses) {
  const bool ordered = GetParam();
  std::mt19937 random(ordered ? 1 : 2);
  for (int run = 0; run < 150; ++run) {
    const auto capacity = static_cast<std::int64_t>(1 + random() % 40);
    std::vector<std::int64_t> windows = {0};
    for (int i = 0; i < 3; ++i) windows.push_back(static_cast<std::int64_t>(1 + random() % 45));
    ModelCache cache(windows, capacity);
    std::vector<PlainLayer> plain(windows.size());
    std::int64_t next = 0;
    for (std::int64_t past = 0; past < capacity;) {
      const auto most = static_cast<std::uint64_t>(capacity - past);
      const auto tokens =
          random() % 3 != 0 ? 1 : static_cast<std::int64_t>(1 + random() % std::min(most, 9UL));
      ASSERT_EQ(cache.length(), past);
      for (std::size_t i = 0; i < windows.size(); ++i) {
        const KeysValues added = new_tokens(tokens, &next);
        plain[i].extend(added);
        KeysValues seen = extended(cache, static_cast<std::int64_t>(i), added, ordered);
        const std::int64_t window = windows[i] == 0 ? capacity : windows[i];
        // The first of the new tokens looks at a whole window, too.
        const std::int64_t least = std::min(past + tokens, window - 1 + tokens);
        const std::int64_t count = seen.keys.size(2);
        ASSERT_GE(count, least);
        ASSERT_LE(count, past + tokens);
        if (tokens == 1) {
          ASSERT_EQ(count, least);
        }
        if (!ordered) seen = in_order(seen);
        ASSERT_TRUE(same(seen, plain[i].last(count)))
            << "run " << run << ", layer " << i << ", window " << window << ", " << past << " + "
            << tokens;
      }
      cache.advance(tokens);
      past += tokens;
      if (random() % 4 != 0) continue;
      std::vector<std::int64_t> rows;
      for (std::int64_t row = 0; row < kBatch; ++row) {
        rows.push_back(static_cast<std::int64_t>(random() % kBatch));
      }
      cache.reorder(at::tensor(rows, at::kLong));
      for (PlainLayer& layer : plain) layer.reorder(at::tensor(rows, at::kLong));
    }
  }
}

TEST(ModelCache, ASequenceThatOutgrowsItIsAnErrorThatTellsBothLengths) {
  std::int64_t next = 0;
  for (const std::int64_t window : {0, 4}) {
    ModelCache cache({window}, 10);
    cache.extend(0, new_tokens(8, &next), true);
    cache.advance(8);
    test::expect_error(ErrorKind::kUsage, AllOf(HasSubstr("11 tokens"), HasSubstr("room for 10")),
                       [&] { cache.extend(0, new_tokens(3, &next), true); });
    EXPECT_EQ(cache.extend(0, new_tokens(2, &next), true).keys.size(2), window == 0 ? 10 : 5);
  }
}

TEST(ModelCache, ALayerHoldsNoMoreThanItsWindow) {
  ModelCache cache({0, 4, 100}, 10);
  EXPECT_EQ(cache.bytes(), 0U);
  std::int64_t next = 0;
  for (int pass = 0; pass < 5; ++pass) {
    for (std::int64_t layer = 0; layer < 3; ++layer) {
      cache.extend(layer, new_tokens(2, &next), true);
    }
    cache.advance(2);
    EXPECT_EQ(cache.bytes(), bytes_of_tokens(10 + 4 + 10)) << pass;
  }
  cache.reorder(at::tensor({2L, 1L, 0L}, at::kLong));
  EXPECT_EQ(cache.bytes(), bytes_of_tokens(10 + 4 + 10));
}

TEST(ModelCache, WhatIsCrossedIsKeptAndCountedAndStaysWhereSequencesAreReordered) {
  ModelCache cache({0, 0}, 10);
  EXPECT_FALSE(cache.crossed(1).keys.defined());
  std::int64_t next = 0;
  const KeysValues all = new_tokens(7, &next);
  cache.keep_crossed(1, all);
  EXPECT_TRUE(same(cache.crossed(1), all));
  EXPECT_FALSE(cache.crossed(0).keys.defined());
  EXPECT_EQ(cache.length(), 0);
  EXPECT_EQ(cache.bytes(), bytes_of_tokens(7));
  cache.reorder(at::tensor({2L, 0L, 2L}, at::kLong));
  EXPECT_TRUE(same(cache.crossed(1), all));
}

TEST(ModelCache, EachSequenceIsRepeatedSideBySide) {
  ModelCache cache({0, 4}, 10);
  std::int64_t next = 0;
  const KeysValues crossed = new_tokens(3, &next);
  cache.keep_crossed(0, crossed);
  const KeysValues first = new_tokens(6, &next);
  cache.extend(0, first, true);
  cache.extend(1, first, true);
  cache.advance(6);
  cache.repeat(2);
  EXPECT_EQ(cache.bytes(), 2 * bytes_of_tokens(3 + 10 + 4));
  const auto twice = [](const KeysValues& some) {
    return KeysValues{some.keys.repeat_interleave(2, 0), some.values.repeat_interleave(2, 0)};
  };
  EXPECT_TRUE(same(cache.crossed(0), twice(crossed)));
  const KeysValues second = twice(new_tokens(1, &next));
  PlainLayer plain{twice(first)};
  plain.extend(second);
  EXPECT_TRUE(same(cache.extend(0, second, true), plain.last(7)));
  EXPECT_TRUE(same(cache.extend(1, second, true), plain.last(4)));
}

}  // namespace
}  // namespace haul::runtime
