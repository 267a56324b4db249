#include <gtest/gtest.h>

#include "core/formats/checkpoint.h"
#include "tests/support/expect_error.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/temporary_folder.h"

namespace haul::core {
namespace {

using test::expect_error;
using test::GgufBytes;
using testing::AllOf;
using testing::HasSubstr;

std::string part(std::uint32_t number, std::uint32_t count, const std::string& tensor) {
  GgufBytes file;
  if (number == 0) file.text("general.architecture", "llama");
  file.entry("split.no", 2, GgufBytes::raw(static_cast<std::uint16_t>(number)));
  file.entry("split.count", 2, GgufBytes::raw(static_cast<std::uint16_t>(count)));
  file.floats(tensor, {1}, {static_cast<float>(number)});
  return file.bytes();
}

TEST(GgufCheckpoint, HasTensorsMetadataAndBytes) {
  const test::TemporaryFolder folder;
  GgufBytes file;
  file.text("general.architecture", "llama").floats("a", {2}, {1, 2});
  const Checkpoint checkpoint = Checkpoint::open(folder.write("m.gguf", file.bytes()));
  EXPECT_EQ(checkpoint.format(), CheckpointFormat::kGguf);
  EXPECT_EQ(checkpoint.metadata().at("general.architecture"), "llama");
  ASSERT_NE(checkpoint.find("a"), nullptr);
  EXPECT_EQ(checkpoint.bytes(*checkpoint.find("a")).size(), 8u);
  EXPECT_EQ(checkpoint.stored_bytes(), 8u);
}

TEST(GgufCheckpoint, IsKnownByItsFirstBytesWhateverItsName) {
  const test::TemporaryFolder folder;
  GgufBytes file;
  file.floats("a", {1}, {1});
  EXPECT_EQ(Checkpoint::open(folder.write("weights", file.bytes())).format(),
            CheckpointFormat::kGguf);
}

TEST(GgufCheckpoint, JoinsTheFilesOfAModelInParts) {
  const test::TemporaryFolder folder;
  const auto first = folder.write("m-00001-of-00003.gguf", part(0, 3, "a"));
  folder.write("m-00002-of-00003.gguf", part(1, 3, "b"));
  folder.write("m-00003-of-00003.gguf", part(2, 3, "c"));
  for (const auto& path : {first, folder.path()}) {
    const Checkpoint checkpoint = Checkpoint::open(path);
    ASSERT_EQ(checkpoint.tensors().size(), 3u);
    EXPECT_EQ(checkpoint.tensors()[2].name, "c");
    EXPECT_EQ(checkpoint.tensors()[2].file, 2u);
    EXPECT_EQ(checkpoint.metadata().at("general.architecture"), "llama");
    float value = 0;
    std::memcpy(&value, checkpoint.bytes(checkpoint.tensors()[2]).data(), sizeof(value));
    EXPECT_EQ(value, 2);
  }
}

TEST(GgufCheckpoint, NamesAPartThatIsMissing) {
  const test::TemporaryFolder folder;
  const auto first = folder.write("m-00001-of-00002.gguf", part(0, 2, "a"));
  expect_error(ErrorKind::kNotFound, HasSubstr("m-00002-of-00002.gguf"),
               [&] { Checkpoint::open(first); });
}

TEST(GgufCheckpoint, AsksForTheFirstPart) {
  const test::TemporaryFolder folder;
  const auto second = folder.write("m-00002-of-00002.gguf", part(1, 2, "b"));
  expect_error(ErrorKind::kUsage, HasSubstr("part 2 of 2"), [&] { Checkpoint::open(second); });
  const auto renamed = folder.write("renamed.gguf", part(0, 2, "b"));
  expect_error(ErrorKind::kUsage, HasSubstr("part 1 of 2"), [&] { Checkpoint::open(renamed); });
}

TEST(GgufCheckpoint, RefusesPartsThatDoNotBelongTogether) {
  const test::TemporaryFolder folder;
  const auto first = folder.write("m-00001-of-00002.gguf", part(0, 2, "a"));
  folder.write("m-00002-of-00002.gguf", part(2, 3, "b"));
  expect_error(ErrorKind::kCorrupt, AllOf(HasSubstr("m-00002-of-00002"), HasSubstr("part 3 of 3")),
               [&] { Checkpoint::open(first); });
  folder.write("m-00002-of-00002.gguf", part(1, 2, "a"));
  expect_error(ErrorKind::kCorrupt, HasSubstr("tensor 'a'"), [&] { Checkpoint::open(first); });
}

}  // namespace
}  // namespace haul::core
