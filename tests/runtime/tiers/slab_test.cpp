#include "runtime/tiers/slab.h"

#include <sys/resource.h>

#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

namespace haul::runtime {
namespace {

bool system_has_huge_pages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  return text.find("[madvise]") != text.npos || text.find("[always]") != text.npos;
}

long faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

TEST(Slab, ComesInFewStepsWhereTheSystemHasHugePages) {
  constexpr Bytes kSize = 64 * kMiB;
  constexpr Bytes kPage = 4096;
  const Slab slab(c10::Device(c10::kCPU), kSize, {});
  const long before = faults();
  for (Bytes at = 0; at < kSize; at += kPage) slab.data()[at] = std::byte{1};
  const long pages = static_cast<long>(kSize / kPage);
  EXPECT_LT(faults() - before, system_has_huge_pages() ? pages / 4 : pages + pages / 4);
}

TEST(Slab, StartsAtAPageAndHoldsZeros) {
  const Slab slab(c10::Device(c10::kCPU), 5 * kMiB + 1, {});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(slab.data()) % 4096, 0U);
  EXPECT_EQ(slab.data()[0], std::byte{0});
  EXPECT_EQ(slab.data()[slab.size() - 1], std::byte{0});
}

}  // namespace
}  // namespace haul::runtime
