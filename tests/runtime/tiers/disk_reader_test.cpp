#include "runtime/tiers/disk_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/read_target.h"
#include "tests/support/temporary_folder.h"

namespace haul::runtime {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::random_bytes;
using test::ReadTarget;
using test::start_read;
using testing::AllOf;
using testing::HasSubstr;

void drop_from_cache(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY);
  ::fsync(file);
  ASSERT_EQ(::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED), 0);
  ::close(file);
}

struct Setup {
  const char* name;
  DiskReader::Way way;
  bool warm;
};

class DiskReaderWays : public testing::TestWithParam<Setup> {
 protected:
  DiskReader::Options options() const {
    DiskReader::Options options;
    options.way = GetParam().way;
    options.chunk = 64 * kKiB;
    options.depth = 3;
    return options;
  }
  // A file that is in the page cache or not, as the parameter says.
  fs::path file(const std::string& bytes) const {
    const fs::path path = folder_.write("weights", bytes);
    if (!GetParam().warm) drop_from_cache(path);
    return path;
  }

  test::TemporaryFolder folder_{std::filesystem::current_path()};
};

TEST_P(DiskReaderWays, ReadsEveryOffsetAndSize) {
  const std::string bytes = random_bytes(700 * 1000 + 13);
  const fs::path path = file(bytes);
  DiskReader reader(options());
  const int number = reader.open(path);
  EXPECT_EQ(reader.file_size(number), bytes.size());
  const Bytes sizes[] = {0, 1, 7, 64, 511, 512, 513, 4095, 4096, 4097, 65536, 65537, 200'000};
  const Bytes offsets[] = {0, 1, 8, 104, 511, 512, 4095, 4096, 4104, 65535, 131072, 400'001};
  for (const Bytes size : sizes) {
    for (const Bytes offset : offsets) {
      for (const Bytes phase : {Bytes{0}, Bytes{64}, offset}) {
        ReadTarget target(size, phase);
        reader.read_now(number, offset, size, target.to());
        ASSERT_TRUE(target.holds(bytes, offset)) << size << " at " << offset;
        ASSERT_TRUE(target.kept_to_itself()) << size << " at " << offset;
      }
    }
    ReadTarget target(size);
    reader.read_now(number, bytes.size() - size, size, target.to());
    ASSERT_TRUE(target.holds(bytes, bytes.size() - size)) << size << " at the end";
    ASSERT_TRUE(target.kept_to_itself()) << size << " at the end";
  }
}

TEST_P(DiskReaderWays, ServesManyThreadsAtOnce) {
  const std::string bytes = random_bytes(3'000'000);
  const fs::path path = file(bytes);
  DiskReader reader(options());
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      const int number = reader.open(path);
      for (int round = 0; round < 20; ++round) {
        std::vector<std::unique_ptr<ReadTarget>> targets;
        std::vector<Bytes> offsets;
        std::vector<ReadEnd> ends;
        for (int i = 0; i < 8; ++i) {
          const Bytes offset = random() % 2'000'000;
          const Bytes size = random() % (i % 2 == 0 ? 1'000'000 : 5000);
          targets.push_back(std::make_unique<ReadTarget>(size, random() % 64 * 64));
          offsets.push_back(offset);
          ends.push_back(start_read(reader, number, offset, size, targets.back()->to()));
        }
        for (std::size_t i = 0; i < ends.size(); ++i) {
          ends[i].wait();
          if (!targets[i]->holds(bytes, offsets[i]) || !targets[i]->kept_to_itself()) ++wrong;
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(DiskReaderWays, RefusesBytesBehindTheEnd) {
  DiskReader reader(options());
  const int number = reader.open(file(random_bytes(10'000)));
  ReadTarget target(8192);
  for (const Bytes offset : {Bytes{9000}, Bytes{10'001}, ~Bytes{0} - 100}) {
    expect_error(ErrorKind::kCorrupt,
                 AllOf(HasSubstr("weights"), HasSubstr("has 10000 bytes"),
                       HasSubstr("8192 bytes at offset " + std::to_string(offset))),
                 [&] { reader.read_now(number, offset, 8192, target.to()); });
  }
}

TEST_P(DiskReaderWays, NamesAFileThatWasCutShort) {
  const fs::path path = file(random_bytes(1'000'000));
  DiskReader reader(options());
  const int number = reader.open(path);
  fs::resize_file(path, 300'000);
  ReadTarget target(500'000);
  expect_error(ErrorKind::kCorrupt,
               AllOf(HasSubstr("weights"), HasSubstr("offset 200000"), HasSubstr("1000000 bytes"),
                     HasSubstr("has 300000 now")),
               [&] { reader.read_now(number, 200'000, 500'000, target.to()); });
  // The part that is left is not trusted either.
  expect_error(ErrorKind::kCorrupt, HasSubstr("it had 1000000 bytes and has 300000 now"),
               [&] { reader.read_now(number, 0, 1000, target.to()); });
}

TEST_P(DiskReaderWays, NamesAFileThatWasReplacedWrittenToOrRemoved) {
  const std::string bytes = random_bytes(100'000);
  DiskReader reader(options());
  ReadTarget target(1000);
  const auto expect_changed = [&](int number, const char* how) {
    expect_error(ErrorKind::kCorrupt, AllOf(HasSubstr("weights"), HasSubstr(how)),
                 [&] { reader.read_now(number, 0, 1000, target.to()); });
  };
  const fs::path path = file(bytes);
  const int number = reader.open(path);
  reader.read_now(number, 0, 1000, target.to());
  fs::rename(folder_.write("new", bytes), path);
  expect_changed(number, "replaced by another file");
  expect_error(ErrorKind::kCorrupt, HasSubstr("replaced"), [&] { reader.open(path); });

  fs::create_directories(folder_.path() / "other");
  const int second = reader.open(folder_.write("other/weights", bytes));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // a tick of the clock of files
  std::fstream(folder_.path() / "other/weights", std::ios::in | std::ios::out).write("x", 1);
  expect_changed(second, "written to");
  fs::remove(folder_.path() / "other/weights");
  expect_changed(second, "gone");
}

TEST_P(DiskReaderWays, CallsEachDoneBeforeTheDestructorReturns) {
  const std::string bytes = random_bytes(4'000'000);
  const fs::path path = file(bytes);
  std::vector<std::unique_ptr<ReadTarget>> targets;
  for (int i = 0; i < 50; ++i) targets.push_back(std::make_unique<ReadTarget>(3'000'000));
  int right = 0;
  int refused = 0;
  {
    std::vector<ReadEnd> ends;
    {
      DiskReader reader(options());
      const int number = reader.open(path);
      for (auto& target : targets) {
        ends.push_back(start_read(reader, number, 1000, 3'000'000, target->to()));
      }
      ends.front().wait();
    }
    for (std::size_t i = 0; i < ends.size(); ++i) {
      ASSERT_TRUE(ends[i].ended());
      try {
        ends[i].wait();
        if (targets[i]->holds(bytes, 1000)) ++right;
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("closed before a read began"));
        ++refused;
      }
    }
  }
  EXPECT_GE(right, 1);
  EXPECT_EQ(right + refused, 50);
}

INSTANTIATE_TEST_SUITE_P(Ways, DiskReaderWays,
                         testing::Values(Setup{"Cold", DiskReader::Way::kAutomatic, false},
                                         Setup{"Warm", DiskReader::Way::kAutomatic, true},
                                         Setup{"Plain", DiskReader::Way::kPlain, false}),
                         [](const auto& setup) { return setup.param.name; });

TEST(DiskReader, ReadsFromAFileSystemWithoutDirectReads) {
  const fs::path path = fs::path("/dev/shm") / ("haul-test-" + std::to_string(::getpid()));
  const std::string bytes = random_bytes(1'000'001);
  std::ofstream(path, std::ios::binary).write(bytes.data(), 1'000'001);
  ReadTarget target(900'000);
  DiskReader reader;
  const int number = reader.open(path);
  reader.read_now(number, 1001, 900'000, target.to());
  fs::remove(path);
  EXPECT_TRUE(target.holds(bytes, 1001));
  EXPECT_TRUE(target.kept_to_itself());
}

TEST(DiskReader, CountsWhereTheBytesCameFrom) {
  const test::TemporaryFolder folder(std::filesystem::current_path());
  const std::string bytes = random_bytes(5'000'000);
  const fs::path path = folder.write("weights", bytes);
  DiskReader::Options options;
  options.chunk = kMiB;
  DiskReader reader(options);
  const int number = reader.open(path);
  ReadTarget target(4'000'000);
  drop_from_cache(path);
  reader.read_now(number, 100, 4'000'000, target.to());
  const auto cold = reader.counts();
  EXPECT_EQ(cold.bytes_direct + cold.bytes_cached, 4'000'000u);
  EXPECT_EQ(cold.requests, 4u);
  std::ifstream(path, std::ios::binary).read(std::string(5'000'000, ' ').data(), 5'000'000);
  reader.read_now(number, 100, 4'000'000, target.to());
  const auto warm = reader.counts();
  EXPECT_EQ(warm.bytes_direct, cold.bytes_direct);
  EXPECT_EQ(warm.bytes_cached - cold.bytes_cached, 4'000'000u);
}

TEST(DiskReader, LeavesAColdFileOutOfThePageCache) {
  const test::TemporaryFolder folder(std::filesystem::current_path());
  const fs::path path = folder.write("weights", random_bytes(8'000'000));
  DiskReader reader;
  const int number = reader.open(path);
  drop_from_cache(path);
  ReadTarget target(7'000'000);
  for (int i = 0; i < 3; ++i) reader.read_now(number, 3000, 7'000'000, target.to());
  if (reader.alignment(number) == 1) return;  // no direct reads here
  EXPECT_EQ(reader.counts().bytes_direct, 21'000'000u);
  EXPECT_EQ(reader.counts().bytes_cached, 0u);
}

TEST(DiskReader, TakesFromThePageCacheWhatIsThereOfAFile) {
  const test::TemporaryFolder folder(std::filesystem::current_path());
  const std::string bytes = random_bytes(4 * kMiB);
  const fs::path path = folder.write("weights", bytes);
  DiskReader::Options options;
  options.chunk = kMiB;
  DiskReader reader(options);
  const int number = reader.open(path);
  drop_from_cache(path);
  const int file = ::open(path.c_str(), O_RDONLY);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);
  std::string half(2 * kMiB, ' ');
  ASSERT_EQ(::pread(file, half.data(), half.size(), 0), static_cast<ssize_t>(half.size()));
  ::close(file);
  ReadTarget target(4 * kMiB);
  reader.read_now(number, 0, 4 * kMiB, target.to());
  EXPECT_TRUE(target.holds(bytes, 0));
  if (reader.alignment(number) == 1) return;  // no direct reads here
  EXPECT_EQ(reader.counts().bytes_cached, 2 * kMiB);
  EXPECT_EQ(reader.counts().bytes_direct, 2 * kMiB);
}

TEST(DiskReader, GivesOnePathOneNumber) {
  const test::TemporaryFolder folder(std::filesystem::current_path());
  const fs::path a = folder.write("a", "a");
  const fs::path b = folder.write("b", "b");
  DiskReader reader;
  const int first = reader.open(a);
  EXPECT_NE(reader.open(b), first);
  EXPECT_EQ(reader.open(a), first);
}

TEST(DiskReader, RefusesWhatIsNoFile) {
  const test::TemporaryFolder folder(std::filesystem::current_path());
  DiskReader reader;
  expect_error(ErrorKind::kNotFound, HasSubstr("absent"),
               [&] { reader.open(folder.path() / "absent"); });
  expect_error(ErrorKind::kResource, HasSubstr("directory"), [&] { reader.open(folder.path()); });
  ReadTarget target(1);
  expect_error(ErrorKind::kUsage, HasSubstr("number 3"),
               [&] { reader.read_now(3, 0, 1, target.to()); });
}

}  // namespace
}  // namespace haul::runtime
