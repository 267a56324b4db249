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

UseOrder order_of(int weights) {
  UseOrder order;
  for (int i = 0; i < weights; ++i) order.add_weight();
  return order;
}

TEST(UseOrder, ExpectsTheOrderOfNumbersUntilItKnows) {
  UseOrder order = order_of(4);
  UseOrder::Position position;
  EXPECT_EQ(expected_uses(order, position, {0, 1, 2, 3}), 4);
}

TEST(UseOrder, LearnsAPassInOneAndFollowsItEvenWhereModulesAreUsedTwice) {
  UseOrder order = order_of(5);
  UseOrder::Position position;
  const std::vector<int> pass = {3, 1, 3, 0, 4, 1, 2};
  expected_uses(order, position, pass);
  expected_uses(order, position, pass);  // the step from the end to the start
  EXPECT_EQ(expected_uses(order, position, pass), 7);
}

TEST(UseOrder, LearnsForwardAndBackward) {
  UseOrder order = order_of(4);
  UseOrder::Position position;
  const std::vector<int> pass = {0, 1, 2, 3, 2, 1, 0};
  expected_uses(order, position, pass);
  expected_uses(order, position, pass);
  EXPECT_GE(expected_uses(order, position, pass), 6);
}

// As in layers that name last what they use first.
TEST(UseOrder, ExpectsWhatWasNotUsedYet) {
  UseOrder order = order_of(4);
  order.skip_number();
  order.add_weight();
  UseOrder::Position position;
  EXPECT_EQ(expected_uses(order, position, {2, 0, 1}), 2);
  UseOrder::Position ahead = order.next(position);
  EXPECT_EQ(ahead.now, 3);
  ahead = order.next(ahead);
  EXPECT_EQ(ahead.now, 5);
  EXPECT_EQ(order.next(ahead).now, 2) << "from the start";
  EXPECT_EQ(expected_uses(order, position, {3, 5, 2, 0, 1, 3, 5}), 7);
}

TEST(UseOrder, DoesNotBeginWithWhatIsSkipped) {
  UseOrder order;
  order.skip_number();
  order.add_weight();
  order.add_weight();
  UseOrder::Position position;
  EXPECT_EQ(order.next(position).now, 1);
  order.use(position, 1);
  EXPECT_EQ(order.next(position).now, 2);
}

TEST(UseOrder, LearnsAnotherWay) {
  UseOrder order = order_of(4);
  UseOrder::Position position;
  expected_uses(order, position, {0, 1, 2, 3});
  expected_uses(order, position, {0, 3, 2, 1});
  expected_uses(order, position, {0, 3, 2, 1});
  EXPECT_EQ(expected_uses(order, position, {0, 3, 2, 1}), 4);
}

}  // namespace
}  // namespace haul::runtime
