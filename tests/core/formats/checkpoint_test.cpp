#include "core/formats/checkpoint.h"

#include <gtest/gtest.h>

#include "core/formats/checkpoint_builder.h"
#include "tests/core/formats/safetensors_text.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace haul::core {
namespace {

using test::safetensors_file;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::string one_tensor(const std::string& name, char value) {
  return safetensors_file(R"({")" + name + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                          std::string(1, value));
}

char first_byte(const Checkpoint& checkpoint, std::string_view name) {
  const StoredTensor* tensor = checkpoint.find(name);
  if (tensor == nullptr) return '?';
  return static_cast<char>(checkpoint.bytes(*tensor)[0]);
}

std::vector<std::string> names(const Checkpoint& checkpoint) {
  std::vector<std::string> result;
  for (const StoredTensor& tensor : checkpoint.tensors()) result.push_back(tensor.name);
  return result;
}

TEST(Checkpoint, OpensASafetensorsFileByAnyName) {
  const test::TemporaryFolder folder;
  for (const char* name : {"x.safetensors", "x.weights"}) {
    const auto checkpoint = Checkpoint::open(folder.write(name, one_tensor("w", '7')));
    EXPECT_EQ(checkpoint.format(), CheckpointFormat::kSafetensors);
    EXPECT_EQ(first_byte(checkpoint, "w"), '7');
    EXPECT_EQ(checkpoint.find("v"), nullptr);
    EXPECT_EQ(checkpoint.stored_bytes(), 1U);
  }
}

TEST(Checkpoint, ShowsTheMetadataOfAFile) {
  const test::TemporaryFolder folder;
  const auto path =
      folder.write("m.safetensors", safetensors_file(R"({"__metadata__":{"format":"pt"}})"));
  EXPECT_EQ(Checkpoint::open(path).metadata().dump(), R"({"format":"pt"})");
}

TEST(Checkpoint, NamesWhatItDoesNotKnow) {
  const test::TemporaryFolder folder;
  test::expect_error(ErrorKind::kNotFound, HasSubstr("absent"),
                     [&] { Checkpoint::open(folder.path() / "absent"); });
  test::expect_error(ErrorKind::kUnsupported, HasSubstr("notes.txt"),
                     [&] { Checkpoint::open(folder.write("notes.txt", "hello")); });
  test::expect_error(ErrorKind::kNotFound, HasSubstr("no checkpoint"),
                     [&] { Checkpoint::open(folder.path()); });
}

TEST(Checkpoint, SaysThatAGitLfsPointerIsNotTheWeights) {
  const test::TemporaryFolder folder;
  const auto path = folder.write("model.safetensors",
                                 "version https://git-lfs/spec/v1\noid sha256:00\nsize 12\n");
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("Git LFS pointer"),
                     [&] { Checkpoint::open(path); });
}

TEST(Checkpoint, AFolderMeansItsWholeFile) {
  const test::TemporaryFolder folder;
  folder.write("model.safetensors", one_tensor("w", '1'));
  folder.write("other.safetensors", one_tensor("v", '2'));
  const auto checkpoint = Checkpoint::open(folder.path());
  EXPECT_THAT(names(checkpoint), ElementsAre("w"));
  EXPECT_THAT(checkpoint.notes(), IsEmpty());
}

TEST(Checkpoint, PrefersSafetensorsToPicklesWithANote) {
  const test::TemporaryFolder folder;
  folder.write("model.safetensors", one_tensor("w", '1'));
  folder.write("pytorch_model.bin", "not read");
  EXPECT_THAT(Checkpoint::open(folder.path()).notes(),
              ElementsAre(AllOf(HasSubstr("model.safetensors"), HasSubstr("pytorch_model.bin"))));

  const test::TemporaryFolder sharded;
  sharded.write("model-1.safetensors", one_tensor("w", '1'));
  sharded.write("model.safetensors.index.json", R"({"weight_map":{"w":"model-1.safetensors"}})");
  sharded.write("pytorch_model.bin.index.json", R"({"weight_map":{"w":"pytorch_model-1.bin"}})");
  const auto checkpoint = Checkpoint::open(sharded.path());
  EXPECT_EQ(first_byte(checkpoint, "w"), '1');
  EXPECT_THAT(checkpoint.notes(), ElementsAre(HasSubstr("pytorch_model.bin.index.json")));
}

TEST(Checkpoint, ListsSeveralIndexes) {
  const test::TemporaryFolder folder;
  folder.write("a.safetensors.index.json", "{}");
  folder.write("b.safetensors.index.json", "{}");
  test::expect_error(
      ErrorKind::kUsage,
      AllOf(HasSubstr("a.safetensors.index.json, b.safetensors.index.json"), HasSubstr("several")),
      [&] { Checkpoint::open(folder.path()); });
}

TEST(Checkpoint, AFolderMayMeanItsOneGgufFileOrTheFirstOfItsParts) {
  const test::TemporaryFolder folder;
  folder.write("a.gguf", "broken");
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("a.gguf"),
                     [&] { Checkpoint::open(folder.path()); });
  folder.write("b.gguf", "broken");
  test::expect_error(ErrorKind::kUsage, HasSubstr("several GGUF files: a.gguf, b.gguf"),
                     [&] { Checkpoint::open(folder.path()); });

  const test::TemporaryFolder parts;
  parts.write("x-00001-of-00002.gguf", "broken");
  parts.write("x-00002-of-00002.gguf", "broken");
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("x-00001-of-00002.gguf"),
                     [&] { Checkpoint::open(parts.path()); });
}

TEST(ShardedCheckpoint, ReadsAWeightMapAndAFlatIndex) {
  const test::TemporaryFolder folder;
  folder.write("sub/2.safetensors", one_tensor("b", '2'));
  folder.write("1.safetensors", one_tensor("a", '1'));
  const std::string map = R"({"b":"sub/2.safetensors","a":"1.safetensors"})";
  for (const std::string& text :
       {map, R"({"metadata":{"total_size":2},"weight_map":)" + map + "}"}) {
    const auto checkpoint = Checkpoint::open(folder.write("m.index.json", text));
    EXPECT_THAT(names(checkpoint), ElementsAre("a", "b"));  // shards by name
    EXPECT_EQ(first_byte(checkpoint, "b"), '2');
    EXPECT_THAT(checkpoint.notes(), IsEmpty());
  }
}

TEST(ShardedCheckpoint, NamesEveryMissingShard) {
  const test::TemporaryFolder folder;
  folder.write("2.safetensors", one_tensor("b", '2'));
  const auto index = folder.write(
      "m.index.json", R"({"a":"1.safetensors","b":"2.safetensors","c":"3.safetensors"})");
  test::expect_error(
      ErrorKind::kNotFound,
      AllOf(HasSubstr("2 of its 3 shards"), HasSubstr("1.safetensors, 3.safetensors")),
      [&] { Checkpoint::open(index); });
}

TEST(ShardedCheckpoint, RefusesShardsOutsideTheFolder) {
  const test::TemporaryFolder folder;
  folder.write("x.safetensors", one_tensor("a", '1'));
  const std::string absolute = (folder.path() / "x.safetensors").string();
  for (const std::string& name : {std::string("../x.safetensors"), std::string("s/../../x"),
                                  absolute, std::string(""), std::string("x\\u0000")}) {
    const auto index = folder.write("s/m.index.json", R"({"a":")" + name + R"("})");
    test::expect_error(ErrorKind::kCorrupt,
                       AllOf(HasSubstr("m.index.json"), HasSubstr("'a'"), HasSubstr("leaves")),
                       [&] { Checkpoint::open(index); });
  }
}

TEST(ShardedCheckpoint, RefusesAnIndexThatIsNone) {
  const test::TemporaryFolder folder;
  for (const char* text : {"[]", "{}", R"({"weight_map":{}})", R"({"weight_map":[]})",
                           R"({"a":"x","b":1})", R"({"a":"x","a":"y"})", "{"}) {
    test::expect_error(ErrorKind::kCorrupt, HasSubstr("m.index.json"),
                       [&] { Checkpoint::open(folder.write("m.index.json", text)); });
  }
}

TEST(ShardedCheckpoint, ListsTensorsThatNoShardHas) {
  const test::TemporaryFolder folder;
  folder.write("1.safetensors", one_tensor("a", '1'));
  const auto index =
      folder.write("m.index.json", R"({"a":"1.safetensors","gone":"1.safetensors"})");
  test::expect_error(ErrorKind::kCorrupt,
                     AllOf(HasSubstr("'gone' (1.safetensors)"), Not(HasSubstr("'a'"))),
                     [&] { Checkpoint::open(index); });
}

TEST(ShardedCheckpoint, NotesTensorsThatTheIndexLacks) {
  const test::TemporaryFolder folder;
  folder.write("1.safetensors", one_tensor("a", '1'));
  folder.write("2.safetensors", one_tensor("b", '2'));
  folder.write("both.safetensors",
               safetensors_file(R"({"c":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
                                    "extra":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                "xy"));
  const auto index =
      folder.write("m.index.json", R"({"a":"1.safetensors","c":"both.safetensors"})");
  const auto checkpoint = Checkpoint::open(index);
  EXPECT_THAT(names(checkpoint), ElementsAre("a", "c", "extra"));
  EXPECT_THAT(checkpoint.notes(), ElementsAre(HasSubstr("'extra'")));
}

TEST(ShardedCheckpoint, RefusesATensorThatTwoShardsHave) {
  const test::TemporaryFolder folder;
  folder.write("1.safetensors", one_tensor("a", '1'));
  folder.write("2.safetensors", one_tensor("a", '2'));
  const auto index = folder.write("m.index.json", R"({"a":"1.safetensors","b":"2.safetensors"})");
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("'b' (2.safetensors)"),
                     [&] { Checkpoint::open(index); });
  const auto flat = folder.write("n.index.json", R"({"a":"1.safetensors","c":"3.safetensors"})");
  folder.write("3.safetensors",
               safetensors_file(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
                                    "c":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                "xy"));
  test::expect_error(
      ErrorKind::kCorrupt,
      AllOf(HasSubstr("3.safetensors"), HasSubstr("'a'"), HasSubstr("1.safetensors already")),
      [&] { Checkpoint::open(flat); });
}

TEST(CheckpointBuilder, ChecksEveryTensorAgainstItsFile) {
  const test::TemporaryFolder folder;
  CheckpointBuilder builder(CheckpointFormat::kTorchZip);
  StoredTensor tensor;
  tensor.name = "w";
  tensor.dtype = Dtype::kF32;
  tensor.shape = {2, 2};
  tensor.file = builder.add_file(folder.write("data", std::string(20, 'x')));
  tensor.size = 16;
  tensor.offset = 5;
  const auto refused = [&](const char* why) {
    test::expect_error(ErrorKind::kCorrupt, AllOf(HasSubstr("'w'"), HasSubstr(why)),
                       [&] { builder.add(tensor); });
  };
  refused("beyond the file's end");
  tensor.offset = ~Bytes{0};
  refused("beyond the file's end");
  tensor.offset = 4;
  builder.add(tensor);
  tensor.size = 12;
  refused("needs 16 bytes");
  tensor.strides = {1, 1};
  builder.add(tensor);  // 3 elements are spanned
  tensor.strides = {1, 2};
  refused("needs 16 bytes");
  tensor.strides = {1};
  refused("not one of a tensor");
  tensor.strides = {1, -1};
  refused("not one of a tensor");
  tensor.shape = {3, 3};
  tensor.strides = {std::int64_t{1} << 62, std::int64_t{1} << 62};
  refused("not one of a tensor");
}

TEST(Checkpoint, CountsSharedBytesOnce) {
  const test::TemporaryFolder folder;
  CheckpointBuilder builder(CheckpointFormat::kTorchZip);
  StoredTensor tensor;
  tensor.dtype = Dtype::kU8;
  tensor.file = builder.add_file(folder.write("data", std::string(20, 'x')));
  for (const auto& [offset, size] : {std::pair{0, 8}, {4, 8}, {0, 4}, {15, 5}, {0, 0}}) {
    tensor.name += 'w';
    tensor.offset = static_cast<Bytes>(offset);
    tensor.size = static_cast<Bytes>(size);
    tensor.shape = {size};
    builder.add(tensor);
  }
  EXPECT_EQ(std::move(builder).build().stored_bytes(), 17U);
}

}  // namespace
}  // namespace haul::core
