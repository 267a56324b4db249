#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/tiers/disk_reader.h"
#include "tests/support/expect_error.h"
#include "tests/support/read_target.h"
#include "tests/support/temporary_folder.h"

namespace haul::runtime {
namespace {

using test::expect_error;
using test::random_bytes;
using test::ReadTarget;
using test::start_read;
using testing::AllOf;
using testing::HasSubstr;

class DiskReaderFaults : public testing::TestWithParam<DiskReader::Way> {
 protected:
  DiskReaderFaults() : bytes_(random_bytes(1'000'000)) {
    path_ = folder_.write("weights", bytes_);
    options_.way = GetParam();
    options_.chunk = 64 * kKiB;
  }

  test::TemporaryFolder folder_{std::filesystem::current_path()};
  std::string bytes_;
  std::filesystem::path path_;
  DiskReader::Options options_;
};

TEST_P(DiskReaderFaults, AReadErrorNamesTheFileAndThePlaceAndSparesOtherReads) {
  options_.fault = [](int, Bytes offset, Bytes size) -> std::optional<int> {
    if (offset <= 500'000 && 500'000 < offset + size) return EIO;
    return std::nullopt;
  };
  DiskReader reader(options_);
  const int file = reader.open(path_);
  ReadTarget target(900'000);
  expect_error(ErrorKind::kResource,
               AllOf(HasSubstr("weights"), HasSubstr("at offset"), HasSubstr("Input/output error")),
               [&] { reader.read_now(file, 1000, 900'000, target.to()); });
  ReadTarget other(400'000);
  reader.read_now(file, 0, 400'000, other.to());
  EXPECT_TRUE(other.holds(bytes_, 0));
}

TEST_P(DiskReaderFaults, ShortAndInterruptedReadsGoOn) {
  std::mutex mutex;
  std::mt19937 random(1);
  options_.fault = [&](int, Bytes, Bytes) -> std::optional<int> {
    const std::lock_guard lock(mutex);
    switch (random() % 4) {
      case 0:
        return EINTR;
      case 1:
        return EAGAIN;
      case 2:
        return 0;
      default:
        return std::nullopt;
    }
  };
  DiskReader reader(options_);
  const int file = reader.open(path_);
  for (const Bytes offset : {0, 8, 1001, 4096}) {
    ReadTarget target(900'000, 64);
    reader.read_now(file, offset, 900'000, target.to());
    ASSERT_TRUE(target.holds(bytes_, offset)) << offset;
    ASSERT_TRUE(target.kept_to_itself()) << offset;
  }
}

TEST_P(DiskReaderFaults, AnInterruptionWithoutEndIsAnError) {
  options_.fault = [](int, Bytes, Bytes) { return std::optional<int>(EAGAIN); };
  DiskReader reader(options_);
  const int file = reader.open(path_);
  ReadTarget target(100'000);
  expect_error(ErrorKind::kResource, HasSubstr("weights"),
               [&] { reader.read_now(file, 0, 100'000, target.to()); });
}

TEST_P(DiskReaderFaults, AFileThatRefusesDirectReadsIsReadPlainly) {
  options_.fault = [refusals = std::make_shared<std::atomic<int>>(0)](int, Bytes,
                                                                      Bytes) -> std::optional<int> {
    if (refusals->fetch_add(1) == 0) return EINVAL;
    return std::nullopt;
  };
  if (GetParam() == DiskReader::Way::kPlain) return;  // there EINVAL is an error like any other
  const int cold = ::open(path_.c_str(), O_RDONLY);
  ::fsync(cold);
  ::posix_fadvise(cold, 0, 0, POSIX_FADV_DONTNEED);
  ::close(cold);
  DiskReader reader(options_);
  const int file = reader.open(path_);
  for (int i = 0; i < 2; ++i) {
    ReadTarget target(900'000, 64);
    reader.read_now(file, 1001, 900'000, target.to());
    EXPECT_TRUE(target.holds(bytes_, 1001));
  }
  EXPECT_GE(reader.counts().bytes_cached, 900'000u);
}

TEST_P(DiskReaderFaults, UnderRandomFaultsEachReadEndsOnceRightOrWithAnError) {
  std::mutex mutex;
  std::mt19937 random(7);
  options_.fault = [&](int, Bytes, Bytes) -> std::optional<int> {
    const std::lock_guard lock(mutex);
    const auto drawn = random() % 64;
    if (drawn == 0) return EIO;
    if (drawn < 4) return EINTR;
    if (drawn < 8) return 0;
    return std::nullopt;
  };
  DiskReader reader(options_);
  const int file = reader.open(path_);
  int right = 0;
  int failed = 0;
  std::mt19937 shapes(3);
  for (int round = 0; round < 100; ++round) {
    std::vector<std::unique_ptr<ReadTarget>> targets;
    std::vector<Bytes> offsets;
    std::vector<ReadEnd> ends;
    for (int i = 0; i < 8; ++i) {
      const Bytes offset = shapes() % 600'000;
      const Bytes size = shapes() % 400'000;
      targets.push_back(std::make_unique<ReadTarget>(size, shapes() % 64 * 64));
      offsets.push_back(offset);
      ends.push_back(start_read(reader, file, offset, size, targets.back()->to()));
    }
    for (std::size_t i = 0; i < ends.size(); ++i) {
      try {
        ends[i].wait();
        ASSERT_TRUE(targets[i]->holds(bytes_, offsets[i]));
        ++right;
      } catch (const Error& error) {
        ASSERT_THAT(error.what(), HasSubstr("Input/output error"));
        ++failed;
      }
      ASSERT_TRUE(targets[i]->kept_to_itself());
    }
  }
  EXPECT_GT(right, 400);
  EXPECT_GT(failed, 10);
}

INSTANTIATE_TEST_SUITE_P(Ways, DiskReaderFaults,
                         testing::Values(DiskReader::Way::kAutomatic, DiskReader::Way::kPlain));

}  // namespace
}  // namespace haul::runtime
