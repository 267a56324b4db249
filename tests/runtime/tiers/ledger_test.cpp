#include "runtime/tiers/ledger.h"

#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace haul::runtime {
namespace {

TEST(Ledger, CountsByTagAndRemembersTheMost) {
  Ledger ledger("RAM", 100);
  {
    const Reservation weights = ledger.reserve(Tag::kWeights, 60);
    Reservation slots = ledger.reserve(Tag::kSlots, 30);
    EXPECT_EQ(ledger.used(), 90U);
    EXPECT_EQ(ledger.used(Tag::kSlots), 30U);
    const Reservation moved = std::move(slots);
    EXPECT_EQ(ledger.used(), 90U) << "moving changes nothing";
  }
  EXPECT_EQ(ledger.used(), 0U);
  EXPECT_EQ(ledger.peak(), 90U);
}

TEST(Ledger, RefusesWhatTheBudgetDoesNotHold) {
  Ledger ledger("GPU 0", 100);
  const Reservation weights = ledger.reserve(Tag::kWeights, 60);
  test::expect_error(ErrorKind::kResource,
                     testing::AllOf(testing::HasSubstr("GPU 0"), testing::HasSubstr("41 bytes"),
                                    testing::HasSubstr("slots")),
                     [&] { ledger.reserve(Tag::kSlots, 41); });
  EXPECT_EQ(ledger.used(), 60U);
  ledger.reserve(Tag::kSlots, 40);
}

}  // namespace
}  // namespace haul::runtime
