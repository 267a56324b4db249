#include "runtime/tiers/page_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/read_target.h"
#include "tests/support/temporary_folder.h"

namespace haul::runtime {
namespace {

constexpr Bytes kSize = 4 * kMiB;
const Bytes kPage = static_cast<Bytes>(::sysconf(_SC_PAGESIZE));

// Pages of a file that are in the page cache, by mincore.
std::size_t pages_of(int file) {
  void* const memory = ::mmap(nullptr, kSize, PROT_READ, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  std::vector<unsigned char> pages((kSize + kPage - 1) / kPage);
  EXPECT_EQ(::mincore(memory, kSize, pages.data()), 0);
  ::munmap(memory, kSize);
  return static_cast<std::size_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; }));
}

// Pages that a processor has yet to put in order stay at first.
void drop(int file) {
  for (int i = 0; i < 100; ++i) {
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    if (pages_of(file) == 0) return;
    ::usleep(10'000);
  }
  ADD_FAILURE() << "pages stay in the page cache";
}

class PageCacheTest : public testing::TestWithParam<PageCacheProbe::Way> {
 protected:
  PageCacheTest() {
    file_ = ::open(folder_.write("f", test::random_bytes(kSize)).c_str(), O_RDONLY);
    ::fsync(file_);
  }
  ~PageCacheTest() override { ::close(file_); }

  void warm() const {
    std::vector<char> bytes(kSize);
    ASSERT_EQ(::pread(file_, bytes.data(), kSize, 0), static_cast<ssize_t>(kSize));
  }

  test::TemporaryFolder folder_{std::filesystem::current_path()};
  int file_ = -1;
};

TEST_P(PageCacheTest, TellsAFileThatIsThereFromOneThatIsNot) {
  warm();
  EXPECT_TRUE(PageCacheProbe(GetParam()).holds(file_, 0, kSize));
  EXPECT_TRUE(PageCacheProbe(GetParam()).holds(file_, kMiB + 17, 2 * kMiB - 5));
  drop(file_);
  EXPECT_FALSE(PageCacheProbe(GetParam()).holds(file_, 0, kSize));
}

TEST_P(PageCacheTest, AsksAgainAfterMisses) {
  drop(file_);
  PageCacheProbe probe(GetParam());
  EXPECT_FALSE(probe.holds(file_, 0, kSize));
  warm();
  bool found = false;
  for (int i = 0; i < 100 && !found; ++i) found = probe.holds(file_, 0, kSize);
  EXPECT_TRUE(found);
}

INSTANTIATE_TEST_SUITE_P(Ways, PageCacheTest,
                         testing::Values(PageCacheProbe::Way::kAsk, PageCacheProbe::Way::kSample));

TEST(PageCacheProbe, SeesAHoleInTheMiddle) {
  const test::TemporaryFolder folder(std::filesystem::current_path());
  const int file = ::open(folder.write("f", test::random_bytes(kSize)).c_str(), O_RDONLY);
  ::fsync(file);
  drop(file);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);
  std::vector<char> bytes(kMiB);
  for (const off_t begin : {off_t{0}, static_cast<off_t>(3 * kMiB)}) {
    ASSERT_EQ(::pread(file, bytes.data(), kMiB, begin), static_cast<ssize_t>(kMiB));
  }
  PageCacheProbe probe;
  EXPECT_FALSE(probe.holds(file, 0, kSize));
  EXPECT_TRUE(probe.holds(file, 0, kMiB));
  EXPECT_TRUE(probe.holds(file, 3 * kMiB, kSize));
  ::close(file);
}

}  // namespace
}  // namespace haul::runtime
