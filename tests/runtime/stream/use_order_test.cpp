#include "runtime/stream/use_order.h"

#include <vector>

#include <gtest/gtest.h>

namespace haul::runtime {
namespace {

// How many uses of a pass were expected right before they came.
int expected_uses(UseOrder& order, UseOrder::Position& position, const std::vector<int>& pass) {
  int right = 0;
  for (const int weight : pass) {
    right += order.next(position).now == weight;
    order.use(position, weight);
  }
  return right;
}

TEST(UseOrder, ExpectsTheOrderOfNumbersUntilItKnows) {
  UseOrder order(4);
  UseOrder::Position position;
  EXPECT_EQ(expected_uses(order, position, {0, 1, 2, 3}), 4);
}

TEST(UseOrder, LearnsAPassInOneAndFollowsItEvenWhereModulesAreUsedTwice) {
  UseOrder order(5);
  UseOrder::Position position;
  const std::vector<int> pass = {3, 1, 3, 0, 4, 1, 2};
  expected_uses(order, position, pass);
  expected_uses(order, position, pass);  // the step from the end to the start
  EXPECT_EQ(expected_uses(order, position, pass), 7);
}

TEST(UseOrder, LearnsForwardAndBackward) {
  UseOrder order(4);
  UseOrder::Position position;
  const std::vector<int> pass = {0, 1, 2, 3, 2, 1, 0};
  expected_uses(order, position, pass);
  expected_uses(order, position, pass);
  EXPECT_GE(expected_uses(order, position, pass), 6);
}

TEST(UseOrder, LearnsAnotherWay) {
  UseOrder order(4);
  UseOrder::Position position;
  expected_uses(order, position, {0, 1, 2, 3});
  expected_uses(order, position, {0, 3, 2, 1});
  expected_uses(order, position, {0, 3, 2, 1});
  EXPECT_EQ(expected_uses(order, position, {0, 3, 2, 1}), 4);
}

}  // namespace
}  // namespace haul::runtime
