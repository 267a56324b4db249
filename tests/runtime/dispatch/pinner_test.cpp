#include "runtime/dispatch/pinner.h"

#include <gtest/gtest.h>

#include "haul/error.h"
#include "runtime/tiers/gpu.h"

namespace haul::runtime {
namespace {

TEST(Pinner, TellsAtItsEndWhatWentWrong) {
  Slab first(c10::Device(c10::kCPU), kMiB, {});
  Slab second(c10::Device(c10::kCPU), kMiB, {});
  Pinner pinner;
  pinner.add(&first, 0, Pages::kFresh);
  pinner.add(&second, 0, Pages::kFresh);
  if (gpus().empty()) {
    EXPECT_THROW(pinner.finish(), Error);
  } else {
    EXPECT_NO_THROW(pinner.finish());
  }
}

TEST(Pinner, HasNothingToTellOfNothing) {
  Slab empty(c10::Device(c10::kCPU), 0, {});
  Pinner pinner;
  pinner.add(&empty, 0, Pages::kFilled);
  EXPECT_NO_THROW(pinner.finish());
  EXPECT_NO_THROW(Pinner().finish());
}

// Its destructor waits for the slab, which goes after it.
TEST(Pinner, EndsWithoutBeingAsked) {
  Slab slab(c10::Device(c10::kCPU), kMiB, {});
  Pinner pinner;
  pinner.add(&slab, 0, Pages::kFresh);
}

}  // namespace
}  // namespace haul::runtime
