#include "runtime/tiers/page_cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <vector>

#include <gtest/gtest.h>

#include "tests/support/cached_pages.h"
#include "tests/support/read_target.h"
#include "tests/support/temporary_folder.h"

namespace haul::runtime {
namespace {

constexpr Bytes kSize = 4 * kMiB;

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
  test::drop_cached_pages(file_);
  EXPECT_FALSE(PageCacheProbe(GetParam()).holds(file_, 0, kSize));
}

TEST_P(PageCacheTest, AsksAgainAfterMisses) {
  test::drop_cached_pages(file_);
  PageCacheProbe probe(GetParam());
  EXPECT_FALSE(probe.holds(file_, 0, kSize));
  warm();
  bool found = false;
  for (int i = 0; i < 100 && !found; ++i) found = probe.holds(file_, 0, kSize);
  EXPECT_TRUE(found);
}

// A file on a disk, of which the page cache holds nothing.
class PageCacheFill : public testing::Test {
 protected:
  explicit PageCacheFill(Bytes size = kSize + 5)
      : path_(folder_.write("f", test::random_bytes(size))),
        file_(::open(path_.c_str(), O_RDONLY)) {
    test::drop_cached_pages(file_);
  }
  ~PageCacheFill() override { ::close(file_); }

  test::TemporaryFolder folder_{std::filesystem::current_path()};
  std::filesystem::path path_;
  int file_;
};

TEST_F(PageCacheFill, BringsInFilesThatAreThere) {
  const PageCacheFiller filler({folder_.path() / "absent", path_});
  EXPECT_TRUE(test::comes_into_page_cache(file_));
}

class LargePageCacheFill : public PageCacheFill {
 protected:
  LargePageCacheFill() : PageCacheFill(256 * kMiB) {}
};

TEST_F(LargePageCacheFill, EndsWithItsOwner) {
  { const PageCacheFiller filler({path_}); }
  const std::size_t then = test::cached_pages(file_);
  EXPECT_LT(then, 256 * kMiB / test::page_size());
  ::usleep(50'000);
  EXPECT_LE(test::cached_pages(file_), then + 64 * kMiB / test::page_size());  // read ahead
}

INSTANTIATE_TEST_SUITE_P(Ways, PageCacheTest,
                         testing::Values(PageCacheProbe::Way::kAsk, PageCacheProbe::Way::kSample));

TEST(PageCacheProbe, SeesAHoleInTheMiddle) {
  const test::TemporaryFolder folder(std::filesystem::current_path());
  const int file = ::open(folder.write("f", test::random_bytes(kSize)).c_str(), O_RDONLY);
  ::fsync(file);
  test::drop_cached_pages(file);
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
