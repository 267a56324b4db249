#include "core/base/file.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace haul::core {
namespace {

using testing::HasSubstr;

TEST(MappedFile, ShowsTheBytesAlsoAfterAMove) {
  const test::TemporaryFolder folder;
  MappedFile first(folder.write("a", "hello"));
  const MappedFile second = std::move(first);
  EXPECT_EQ(second.text(), "hello");
}

TEST(MappedFile, AnEmptyFileIsEmpty) {
  const test::TemporaryFolder folder;
  EXPECT_TRUE(MappedFile(folder.write("a", "")).bytes().empty());
}

TEST(MappedFile, NamesAMissingFileAndAFolder) {
  const test::TemporaryFolder folder;
  test::expect_error(ErrorKind::kNotFound, HasSubstr("absent"),
                     [&] { MappedFile(folder.path() / "absent"); });
  test::expect_error(ErrorKind::kResource, HasSubstr("directory"),
                     [&] { MappedFile(folder.path()); });
}

TEST(AtomicFile, AppearsOnlyWhenCommitted) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "out";
  {
    AtomicFile file(path);
    file.write("half");
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  write_file_atomically(path, "whole");
  EXPECT_EQ(read_file(path, 100), "whole");
}

TEST(ReadFile, RefusesAFileOverTheLimit) {
  const test::TemporaryFolder folder;
  const auto path = folder.write("big", "123456");
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("limit 5 bytes"), [&] { read_file(path, 5); });
}

}  // namespace
}  // namespace haul::core
