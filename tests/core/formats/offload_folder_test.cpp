#include "core/formats/offload_folder.h"

#include <gtest/gtest.h>

#include "core/formats/checkpoint.h"
#include "tests/core/formats/safetensors_text.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace haul::core {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string text_of(const Checkpoint& checkpoint, std::string_view name) {
  const auto bytes = checkpoint.bytes(*checkpoint.find(name));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(OffloadFolder, ReadsDatFilesAndReferences) {
  const test::TemporaryFolder folder;
  folder.write("off/a.b.dat", "abcd");
  folder.write("off/scalar.dat", "xy");
  folder.write("off/none.dat", "?");
  const auto weights = folder.write(
      "w.safetensors",
      test::safetensors_file(R"({"q":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "qqqq"));
  folder.write("off/index.json",
               R"({"a.b":{"dtype":"bfloat16","shape":[2,1]},"scalar":{"dtype":"int16","shape":[]},
                   "none":{"dtype":"float32","shape":[0,3]},
                   "there":{"safetensors_file":")" +
                   weights.string() + R"(","weight_name":"q","dtype":"float16"},
                   "q":{"safetensors_file":"../w.safetensors"}})");
  const auto checkpoint = Checkpoint::open(folder.path() / "off");
  EXPECT_EQ(checkpoint.format(), CheckpointFormat::kOffloadFolder);
  EXPECT_EQ(checkpoint.find("a.b")->dtype, Dtype::kBF16);
  EXPECT_THAT(checkpoint.find("a.b")->shape, ElementsAre(2, 1));
  EXPECT_EQ(text_of(checkpoint, "a.b"), "abcd");
  EXPECT_THAT(checkpoint.find("scalar")->shape, IsEmpty());
  EXPECT_EQ(text_of(checkpoint, "scalar"), "xy");
  EXPECT_EQ(text_of(checkpoint, "none"), "");
  EXPECT_EQ(text_of(checkpoint, "there"), "qqqq");
  EXPECT_EQ(checkpoint.find("there")->dtype, Dtype::kF32);
  EXPECT_EQ(text_of(checkpoint, "q"), "qqqq");
  EXPECT_THAT(checkpoint.notes(), ElementsAre(HasSubstr("1 tensors are wanted in another dtype")));
}

void expect_refused(const test::TemporaryFolder& folder, const std::string& index, ErrorKind kind,
                    const testing::Matcher<const std::string&>& message) {
  folder.write("index.json", index);
  test::expect_error(kind, AllOf(HasSubstr("index.json"), message),
                     [&] { Checkpoint::open(folder.path()); });
}

TEST(OffloadFolder, RefusesBrokenEntriesByName) {
  const test::TemporaryFolder folder;
  folder.write("w.dat", "abcd");
  const auto corrupt = ErrorKind::kCorrupt;
  expect_refused(folder, R"({"w":{"shape":[1]}})", corrupt, HasSubstr("'w': it has no dtype"));
  expect_refused(folder, R"({"w":{"dtype":"float32"}})", corrupt,
                 HasSubstr("'w': it has no shape"));
  expect_refused(folder, R"({"w":{"dtype":"float32","shape":[-1]}})", corrupt,
                 HasSubstr("'w': its shape"));
  expect_refused(folder, R"({"w":{"dtype":1,"shape":[1]}})", corrupt, HasSubstr("'w': its dtype"));
  expect_refused(folder, R"({"w":{"dtype":"float32","shape":[1]},"v":7})", corrupt,
                 HasSubstr("'v': its entry"));
  expect_refused(folder, R"({"w":{"safetensors_file":1}})", corrupt,
                 HasSubstr("'w': its safetensors_file"));
  expect_refused(folder, R"({"w":{"safetensors_file":"x","weight_name":1}})", corrupt,
                 HasSubstr("'w': its weight_name"));
  expect_refused(folder, R"({"w":{"dtype":"float128","shape":[1]}})", ErrorKind::kUnsupported,
                 HasSubstr("'float128'"));
}

TEST(OffloadFolder, RefusesNamesThatLeaveTheFolder) {
  const test::TemporaryFolder folder;
  folder.write("w.dat", "abcd");
  expect_refused(folder, R"({"../w":{"dtype":"float32","shape":[1]}})", ErrorKind::kCorrupt,
                 HasSubstr("'../w': its name"));
  expect_refused(folder, R"({"/etc/w":{"dtype":"float32","shape":[1]}})", ErrorKind::kCorrupt,
                 HasSubstr("'/etc/w': its name"));
}

TEST(OffloadFolder, NamesEveryMissingFile) {
  const test::TemporaryFolder folder;
  folder.write("b.dat", "abcd");
  expect_refused(folder,
                 R"({"a":{"dtype":"float32","shape":[1]},"b":{"dtype":"float32","shape":[1]},
                     "c":{"dtype":"float32","shape":[1]}})",
                 ErrorKind::kNotFound, HasSubstr("a.dat, c.dat"));
}

TEST(OffloadFolder, RefusesAFileOfAnotherSize) {
  const test::TemporaryFolder folder;
  folder.write("w.dat", "abcd");
  folder.write("index.json", R"({"w":{"dtype":"float32","shape":[2]}})");
  test::expect_error(ErrorKind::kCorrupt,
                     AllOf(HasSubstr("w.dat"), HasSubstr("needs 8 bytes"), HasSubstr("it has 4")),
                     [&] { Checkpoint::open(folder.path()); });
}

TEST(OffloadFolder, NamesAWeightThatItsFileLacks) {
  const test::TemporaryFolder folder;
  folder.write("x.safetensors", test::safetensors_file("{}"));
  folder.write("index.json", R"({"w":{"safetensors_file":"x.safetensors","weight_name":"v"}})");
  test::expect_error(ErrorKind::kCorrupt,
                     AllOf(HasSubstr("x.safetensors"), HasSubstr("'v'"), HasSubstr("'w'")),
                     [&] { Checkpoint::open(folder.path()); });
}

TEST(OffloadFolderWriter, WritesWhatIsReadAgain) {
  const test::TemporaryFolder folder;
  const auto weights = folder.write(
      "w.safetensors",
      test::safetensors_file(R"({"q":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "qqqq"));
  const auto target = folder.path() / "new" / "off";
  OffloadFolderWriter writer(target);
  const std::string text = "abcd";
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  writer.add("a.b", Dtype::kF8E4M3, {2, 2}, bytes);
  writer.add("none", Dtype::kI64, {0}, {});
  writer.add_reference("r", weights, "q", Dtype::kF32);
  test::expect_error(ErrorKind::kUsage, HasSubstr("'a.b' is written twice"),
                     [&] { writer.add("a.b", Dtype::kU8, {4}, bytes); });
  test::expect_error(ErrorKind::kUnsupported, HasSubstr("'x/y'"),
                     [&] { writer.add("x/y", Dtype::kU8, {4}, bytes); });
  test::expect_error(ErrorKind::kUnsupported, HasSubstr("F4"),
                     [&] { writer.add("f", Dtype::kF4, {8}, bytes); });
  EXPECT_FALSE(std::filesystem::exists(target / "index.json"));
  writer.commit();

  const auto checkpoint = Checkpoint::open(target);
  EXPECT_EQ(checkpoint.find("a.b")->dtype, Dtype::kF8E4M3);
  EXPECT_EQ(text_of(checkpoint, "a.b"), "abcd");
  EXPECT_EQ(text_of(checkpoint, "none"), "");
  EXPECT_EQ(text_of(checkpoint, "r"), "qqqq");
  EXPECT_THAT(checkpoint.notes(), IsEmpty());
}

TEST(OffloadFolderWriter, TakesAnOldIndexAwayBeforeItWrites) {
  const test::TemporaryFolder folder;
  folder.write("old.dat", "abcd");
  folder.write("index.json", R"({"old":{"dtype":"float32","shape":[1]}})");
  const OffloadFolderWriter writer(folder.path());
  test::expect_error(ErrorKind::kNotFound, HasSubstr("no checkpoint"),
                     [&] { Checkpoint::open(folder.path()); });
}

}  // namespace
}  // namespace haul::core
