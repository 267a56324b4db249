#include "core/formats/zip.h"

#include <span>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/zip_builder.h"

namespace haul::core {
namespace {

using test::expect_error;
using test::ZipBuilder;
using testing::AllOf;
using testing::HasSubstr;

ZipDirectory read(const std::string& archive) {
  return ZipDirectory(std::as_bytes(std::span(archive.data(), archive.size())));
}

void expect_corrupt(const std::string& archive, const char* message) {
  expect_error(ErrorKind::kCorrupt, HasSubstr(message), [&] { read(archive); });
}

ZipBuilder two_entries() {
  ZipBuilder builder;
  builder.parts = {{"a/one", "first"}, {"a/two", "the second"}};
  return builder;
}

TEST(ZipDirectory, FindsStoredEntriesByName) {
  const std::string archive = two_entries().build();
  const ZipDirectory directory = read(archive);
  ASSERT_EQ(directory.entries().size(), 2u);
  EXPECT_EQ(directory.entries()[0].name, "a/one");
  EXPECT_EQ(directory.stored(*directory.find("a/two")), "the second");
  EXPECT_EQ(directory.find("a/three"), nullptr);
}

TEST(ZipDirectory, ReadsZip64Records) {
  ZipBuilder builder = two_entries();
  builder.zip64 = true;
  const std::string archive = builder.build();
  const ZipDirectory directory = read(archive);
  EXPECT_EQ(directory.stored(*directory.find("a/one")), "first");
  EXPECT_EQ(directory.stored(*directory.find("a/two")), "the second");
}

TEST(ZipDirectory, ReadsEntriesWhoseSizesFollowTheirData) {
  ZipBuilder builder = two_entries();
  for (auto& part : builder.parts) part.flags = 0x808;
  const std::string archive = builder.build();
  EXPECT_EQ(read(archive).stored(*read(archive).find("a/two")), "the second");
}

TEST(ZipDirectory, ReadsArchivesWithAComment) {
  ZipBuilder builder = two_entries();
  builder.comment = "made by hand PK\x05\x06 and so on, long enough for a record";
  const std::string archive = builder.build();
  EXPECT_EQ(read(archive).entries().size(), 2u);
}

TEST(ZipDirectory, ReadsAnEmptyArchive) {
  const std::string archive = ZipBuilder().build();
  EXPECT_TRUE(read(archive).entries().empty());
}

TEST(ZipDirectory, RefusesEveryTruncation) {
  const std::string archive = two_entries().build();
  for (std::size_t length = 0; length < archive.size(); ++length) {
    expect_corrupt(archive.substr(0, length), "no end record");
  }
}

TEST(ZipDirectory, RefusesADirectoryThatDoesNotEndAtItsEndRecord) {
  ZipBuilder builder = two_entries();
  builder.before_end = "gap";
  expect_corrupt(builder.build(), "does not end at");
  builder = two_entries();
  builder.directory_offset = 0xfffffff0;
  expect_corrupt(builder.build(), "does not end at");
  builder.zip64 = true;
  builder.directory_offset = ~std::uint64_t{0} - 5;
  expect_corrupt(builder.build(), "does not end at");
  expect_corrupt("junk in front" + two_entries().build(), "does not end at");
}

TEST(ZipDirectory, RefusesWrongCounts) {
  ZipBuilder builder = two_entries();
  builder.count = 1;
  expect_corrupt(builder.build(), "holds more than its entries");
  builder.count = 3;
  expect_corrupt(builder.build(), "3 entries do not fit");
  builder.zip64 = true;
  builder.count = std::uint64_t{1} << 60;
  expect_corrupt(builder.build(), "entries do not fit");
}

TEST(ZipDirectory, RefusesEntriesOutsideOfTheFile) {
  ZipBuilder builder = two_entries();
  builder.parts[1].header_offset = 100'000;
  expect_corrupt(builder.build(), "entry 'a/two': its header at 100000 lies outside");
  builder.zip64 = true;
  builder.parts[1].header_offset = ~std::uint64_t{0} - 3;
  expect_corrupt(builder.build(), "lies outside of the file");
  builder = two_entries();
  builder.parts[1].stored_size = builder.parts[1].size = 5000;
  builder.parts[1].local_size = 5000;
  expect_corrupt(builder.build(), "entry 'a/two': its 5000 bytes end outside");
  builder.zip64 = true;
  builder.parts[1].local_size = 0xffffffff;
  builder.parts[1].stored_size = builder.parts[1].size = ~std::uint64_t{0};
  expect_corrupt(builder.build(), "end outside of the file");
}

TEST(ZipDirectory, RefusesLocalHeadersThatContradictTheDirectory) {
  ZipBuilder builder = two_entries();
  builder.parts[0].local_name = "a/six";
  expect_corrupt(builder.build(), "entry 'a/one': its own header contradicts");
  builder = two_entries();
  builder.parts[0].local_size = 4;
  expect_corrupt(builder.build(), "entry 'a/one': its own header gives another size");
  builder = two_entries();
  builder.parts[0].header_offset = 1;
  expect_corrupt(builder.build(), "entry 'a/one': there is no entry where");
}

TEST(ZipDirectory, RefusesOverlappingEntries) {
  ZipBuilder builder = two_entries();
  builder.parts[0].flags = 8;  // so that only the directory tells the size
  builder.parts[0].size = builder.parts[0].stored_size = 20;
  // The descriptor's 16 bytes follow the five of data: twenty end inside of it, thirty do not.
  EXPECT_EQ(read(builder.build()).entries()[0].size, 20u);
  builder.parts[0].size = builder.parts[0].stored_size = 30;
  expect_corrupt(builder.build(), "entry 'a/two': it overlaps with 'a/one'");
}

TEST(ZipDirectory, RefusesTwoEntriesOfOneName) {
  ZipBuilder builder = two_entries();
  builder.parts.push_back({"a/one", "other"});
  expect_corrupt(builder.build(), "entry 'a/one': there are two entries of this name");
}

TEST(ZipDirectory, RefusesStoredEntriesOfTwoSizes) {
  ZipBuilder builder = two_entries();
  builder.parts[0].size = 6;
  expect_corrupt(builder.build(), "entry 'a/one': it is stored as it is, yet 5 bytes become 6");
}

TEST(ZipDirectory, RefusesArchivesInParts) {
  std::string archive = two_entries().build();
  archive[archive.size() - 18] = 1;  // this part's number
  expect_corrupt(archive, "one part of several");
}

TEST(ZipDirectory, RefusesEndRecordsThatContradictEachOther) {
  ZipBuilder builder = two_entries();
  builder.zip64 = true;
  std::string archive = builder.build();
  archive[archive.size() - 12] = 9;  // the count in the plain record
  archive[archive.size() - 11] = 0;
  expect_corrupt(archive, "contradict each other");
}

TEST(ZipDirectory, RefusesCompressedAndEncryptedDataByName) {
  ZipBuilder builder = two_entries();
  builder.parts[0].method = 8;
  builder.parts[0].size = 50;
  builder.parts[1].flags = 1;
  const std::string archive = builder.build();
  const ZipDirectory directory = read(archive);
  expect_error(ErrorKind::kUnsupported, AllOf(HasSubstr("'a/one'"), HasSubstr("deflated")),
               [&] { directory.stored(*directory.find("a/one")); });
  expect_error(ErrorKind::kUnsupported, AllOf(HasSubstr("'a/two'"), HasSubstr("encrypted")),
               [&] { directory.stored(*directory.find("a/two")); });
}

}  // namespace
}  // namespace haul::core
