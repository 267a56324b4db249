#include "runtime/tiers/offered_memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <memory>

#include <gtest/gtest.h>

#include "core/base/pages.h"
#include "runtime/tiers/ledger.h"
#include "runtime/tiers/slab.h"

namespace haul::runtime {
namespace {

constexpr Bytes kPart = 64 * kMiB;

bool is_mapped(std::byte* memory) {
  return msync(memory, core::kHugePage, MS_ASYNC) == 0;
}

class OfferedMemory : public testing::Test {
 protected:
  OfferedMemory() {
    constexpr Bytes kRoom = 3 * kPart + core::kHugePage;
    void* const mapped = mmap(nullptr, kRoom, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    auto* const first = static_cast<std::byte*>(mapped);
    const Bytes before = -reinterpret_cast<std::uintptr_t>(first) % core::kHugePage;
    begin_ = first + before;
    if (before > 0) munmap(first, before);
    munmap(begin_ + 3 * kPart, core::kHugePage - before);
    offer_memory(begin_, 3 * kPart, 2 * kPart);
  }
  ~OfferedMemory() override { drop_offered(); }

  std::unique_ptr<Slab> slab(Bytes size) {
    return std::make_unique<Slab>(c10::Device(c10::kCPU), size,
                                  ledger_.reserve(Tag::kWeights, size));
  }
  bool is_offered(const Slab& slab) const {
    return slab.data() >= begin_ && slab.data() < begin_ + 3 * kPart;
  }

  Ledger ledger_{"RAM", std::nullopt};
  std::byte* begin_;
};

TEST_F(OfferedMemory, IsTakenBySlabsUntilItIsUsedUp) {
  std::unique_ptr<Slab> first = slab(kPart - 1);
  EXPECT_EQ(first->data(), begin_);
  EXPECT_EQ(offered_now(), kPart);
  EXPECT_FALSE(is_offered(*slab(kMiB))) << "too little for it";
  const std::unique_ptr<Slab> second = slab(kPart + 1);  // as many huge pages as it needs
  EXPECT_EQ(second->data(), begin_ + kPart);
  EXPECT_EQ(offered_now(), 0);
  EXPECT_FALSE(is_offered(*slab(kPart))) << "so much is not left";
  second->data()[kPart] = std::byte{7};
  first.reset();
  EXPECT_FALSE(is_mapped(begin_));
  EXPECT_TRUE(is_mapped(second->data()));
  EXPECT_EQ(second->data()[kPart], std::byte{7});
}

TEST_F(OfferedMemory, GoesWhereNobodyTakesIt) {
  const std::unique_ptr<Slab> taken = slab(kPart);
  drop_offered();
  EXPECT_TRUE(is_mapped(begin_));
  EXPECT_FALSE(is_mapped(begin_ + kPart));
  EXPECT_EQ(offered_now(), 0);
  EXPECT_EQ(take_offered(kPart), nullptr);
}

}  // namespace
}  // namespace haul::runtime
