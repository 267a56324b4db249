#include "haul/torch/split.h"

#include <numeric>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace haul {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Items = std::vector<int>;

Items items_of(int total) {
  Items items(static_cast<std::size_t>(total));
  std::iota(items.begin(), items.end(), 0);
  return items;
}

std::vector<Items> parts_of(int total, int processes, bool padding) {
  std::vector<Items> parts(static_cast<std::size_t>(processes));
  for (int p = 0; p < processes; ++p) {
    parts[static_cast<std::size_t>(p)] = part_for(items_of(total), p, processes, padding).items;
  }
  return parts;
}

TEST(Split, FollowsTheTablesOfThePeer) {
  EXPECT_THAT(parts_of(3, 2, false), ElementsAre(Items{0, 1}, Items{2}));
  EXPECT_THAT(parts_of(3, 2, true), ElementsAre(Items{0, 1}, Items{2, 2}));
  EXPECT_THAT(parts_of(5, 4, false), ElementsAre(Items{0, 1}, Items{2}, Items{3}, Items{4}));
  EXPECT_THAT(parts_of(5, 4, true),
              ElementsAre(Items{0, 1}, Items{2, 4}, Items{3, 4}, Items{4, 4}));
  EXPECT_THAT(parts_of(2, 4, false), ElementsAre(Items{0}, Items{1}, IsEmpty(), IsEmpty()));
  EXPECT_THAT(parts_of(2, 4, true), ElementsAre(Items{0}, Items{1}, Items{1}, Items{1}));
  std::vector<std::size_t> lengths;
  for (const Items& part : parts_of(17, 8, false)) lengths.push_back(part.size());
  EXPECT_THAT(lengths, ElementsAre(3, 2, 2, 2, 2, 2, 2, 2));
  for (const Items& part : parts_of(17, 8, true)) EXPECT_EQ(part.size(), 3U);
}

TEST(Split, PartsPutTogetherAreTheWhole) {
  for (int processes = 1; processes <= 8; ++processes) {
    for (int total = 0; total <= 40; ++total) {
      Items whole;
      for (const Items& part : parts_of(total, processes, false)) {
        whole.insert(whole.end(), part.begin(), part.end());
      }
      EXPECT_EQ(whole, items_of(total)) << total << " over " << processes;
      for (const Items& part : parts_of(total, processes, true)) {
        EXPECT_EQ(part.size(), static_cast<std::size_t>((total + processes - 1) / processes));
      }
    }
  }
}

TEST(Split, CutsTensorsByRowsAndPadsWithTheLast) {
  const at::Tensor rows = at::arange(10).view({5, 2});
  const Part<at::Tensor> second = part_for(rows, 1, 4, true);
  EXPECT_TRUE(second.items.equal(at::tensor({4, 5, 8, 9}, at::kLong).view({2, 2})));
  EXPECT_EQ(second.share, (Share{2, 1, 1, 5}));
  EXPECT_EQ(part_for(rows, 3, 8).items.sizes(), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(part_for(rows, 7, 8).items.sizes(), (std::vector<std::int64_t>{0, 2}));
  EXPECT_THROW(part_for(at::scalar_tensor(1), 0, 2), Error);
}

TEST(Split, CutsEveryValueOfAMapAndLeavesTheCallersAlone) {
  using Nested = std::map<std::string, std::map<std::string, Items>>;
  const Nested inputs{{"a", {{"x", {1, 2, 3}}}}, {"b", {{"y", {4, 5, 6}}}}};
  EXPECT_EQ(part_for(inputs, 0, 2).items, (Nested{{"a", {{"x", {1, 2}}}}, {"b", {{"y", {4, 5}}}}}));
  EXPECT_EQ(part_for(inputs, 1, 2, true).items,
            (Nested{{"a", {{"x", {3, 3}}}}, {"b", {{"y", {6, 6}}}}}));
  EXPECT_EQ(inputs, (Nested{{"a", {{"x", {1, 2, 3}}}}, {"b", {{"y", {4, 5, 6}}}}}));
  try {
    part_for(std::map<std::string, Items>{{"a", {1, 2}}, {"b", {1}}}, 0, 2);
    FAIL() << "values of different lengths were split";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("'b' has 1 items, 'a' has 2"));
  }
}

// What a user might bring.
struct Numbers {
  std::vector<int> values;
  std::size_t size() const { return values.size(); }
  Numbers slice(std::int64_t begin, std::int64_t end) const {
    return {{values.begin() + begin, values.begin() + end}};
  }
};
struct Growing : Numbers {
  Growing slice(std::int64_t begin, std::int64_t end) const { return {Numbers::slice(begin, end)}; }
  void append(const Growing& other) {
    values.insert(values.end(), other.values.begin(), other.values.end());
  }
};

TEST(Split, CutsTypesOfTheUser) {
  const Numbers numbers{{1, 2, 3}};
  EXPECT_THAT(part_for(numbers, 1, 2).items.values, ElementsAre(3));
  EXPECT_THAT(part_for(numbers, 0, 2, true).items.values, ElementsAre(1, 2));
  EXPECT_THROW(part_for(numbers, 1, 2, true), Error);
  EXPECT_THAT(part_for(Growing{{{1, 2, 3}}}, 1, 2, true).items.values, ElementsAre(3, 3));
}

TEST(Split, RefusesProcessesThatCannotBe) {
  EXPECT_THROW(share_of(3, 2, 2), Error);
  EXPECT_THROW(share_of(3, -1, 2), Error);
  EXPECT_THROW(share_of(3, 0, 0), Error);
  EXPECT_THROW(share_of(-1, 0, 1), Error);
}

}  // namespace
}  // namespace haul
