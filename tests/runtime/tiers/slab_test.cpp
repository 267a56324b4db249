#include "runtime/tiers/slab.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace haul::runtime {
namespace {

bool system_has_huge_pages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  return text.find("[madvise]") != text.npos || text.find("[always]") != text.npos;
}

bool system_joins_pages() {
  return madvise(nullptr, 0, 25) == 0;  // MADV_COLLAPSE, where it is known
}

// Of the mapping that begins there.
Bytes in_huge_pages(const void* memory) {
  std::ifstream file("/proc/self/smaps");
  const std::string first = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(memory));
  bool found = false;
  Bytes sum = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(first)) found = true;
    if (found && line.starts_with("VmFlags")) break;
    if (found && (line.starts_with("AnonHugePages:") || line.starts_with("ShmemPmdMapped:"))) {
      sum += std::stoull(line.substr(line.find(':') + 1)) * kKiB;
    }
  }
  return sum;
}

void touch(const Slab& slab) {
  for (Bytes at = 0; at < slab.size(); at += 4096) slab.data()[at] = std::byte{1};
}

TEST(Slab, HasHugePagesWhereTheSystemDoes) {
  const Slab slab(c10::Device(c10::kCPU), 64 * kMiB, {});
  touch(slab);
  EXPECT_GE(in_huge_pages(slab.data()), system_has_huge_pages() ? 48 * kMiB : 0);
}

TEST(Slab, OfSharedMemoryHasHugePagesAndKeepsItsBytesWhenItIsUnshared) {
  constexpr Bytes kSize = 16 * kMiB;
  const int descriptor = memfd_create("slab", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(descriptor, 2 * kSize), 0);
  const SharedPart part{descriptor, kSize};
  Slab slab(c10::Device(c10::kCPU), kSize - 100, {}, false, part);
  Slab other(c10::Device(c10::kCPU), kSize - 100, {}, false, part);
  touch(slab);
  const Bytes least = system_has_huge_pages() && system_joins_pages() ? kSize - 4 * kMiB : 0;
  EXPECT_GE(in_huge_pages(slab.data()), least);
  EXPECT_EQ(other.data()[kSize / 2], std::byte{1});
  other.unshare(part);
  EXPECT_EQ(other.data()[kSize / 2], std::byte{1});
  other.data()[kSize / 2] = std::byte{2};
  EXPECT_EQ(slab.data()[kSize / 2], std::byte{1});
  close(descriptor);
}

TEST(Slab, StartsAtAPageAndHoldsZeros) {
  const Slab slab(c10::Device(c10::kCPU), 5 * kMiB + 1, {});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(slab.data()) % 4096, 0U);
  EXPECT_EQ(slab.data()[0], std::byte{0});
  EXPECT_EQ(slab.data()[slab.size() - 1], std::byte{0});
}

}  // namespace
}  // namespace haul::runtime
