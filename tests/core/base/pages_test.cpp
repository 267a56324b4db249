#include "core/base/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

namespace haul::core {
namespace {

constexpr std::size_t kSize = std::size_t{8} << 20;
constexpr std::size_t kPage = 4096;

class Pages : public testing::Test {
 protected:
  void SetUp() override {
    memory = static_cast<char*>(
        mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  void TearDown() override { munmap(memory, kSize); }

  std::size_t resident() const {
    std::vector<unsigned char> pages(kSize / kPage);
    mincore(memory, kSize, pages.data());
    return static_cast<std::size_t>(
        std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; }));
  }

  char* memory = nullptr;
};

TEST_F(Pages, AreBroughtBeforeTheyAreTouched) {
  ASSERT_EQ(resident(), 0U);
  bring_pages(memory + kPage, kSize / 2);
  const std::size_t half = kSize / 2 / kPage;
  const std::size_t cut = 2 * (std::size_t{64} << 10) / kPage;  // where no whole page fits
  EXPECT_GE(resident(), half - cut);
  EXPECT_LE(resident(), half);
}

TEST_F(Pages, KeepWhatTheyHold) {
  std::memset(memory, 7, kSize);
  prefer_huge_pages(memory + 1, kSize - 2);
  bring_pages(memory + 1, kSize - 2);
  EXPECT_TRUE(std::all_of(memory, memory + kSize, [](char c) { return c == 7; }));
}

TEST_F(Pages, OfARangeThatHoldsNoWholeOneStay) {
  bring_pages(memory + 1, kPage);
  EXPECT_EQ(resident(), 0U);
}

TEST(SharedPages, AreJoinedAndKeepWhatTheyHold) {
  const int descriptor = memfd_create("pages", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(descriptor, kSize), 0);
  auto* const memory =
      static_cast<char*>(mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0));
  memory[kSize / 2] = 7;
  join_shared_pages(memory, kSize);
  for (std::size_t i = 0; i < kSize; ++i) {
    ASSERT_EQ(memory[i], i == kSize / 2 ? 7 : 0) << i;
  }
  munmap(memory, kSize);
  close(descriptor);
}

}  // namespace
}  // namespace haul::core
