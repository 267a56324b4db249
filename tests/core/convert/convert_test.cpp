#include "core/convert/convert.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstring>

#include <gtest/gtest.h>

#include "core/formats/checkpoint_builder.h"
#include "core/formats/tensor_stream.h"
#include "haul/tokenizer.h"
#include "tests/support/expect_error.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/temporary_folder.h"

namespace haul::core {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

// One F32 tensor 'w' of the numbers 0 to count - 1.
void write_input(const test::TemporaryFolder& folder, const std::string& name, int count) {
  const auto size = std::to_string(4 * count);
  std::string header = R"({"w":{"dtype":"F32","shape":[)" + std::to_string(count) +
                       R"(],"data_offsets":[0,)" + size + "]}}";
  std::string file{static_cast<char>(header.size()), 0, 0, 0, 0, 0, 0, 0};
  file += header;
  for (int i = 0; i < count; ++i) {
    const auto value = static_cast<float>(i);
    file.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  folder.write(name, file);
}

template <typename T>
std::vector<T> values(const Checkpoint& checkpoint, std::string_view name) {
  const auto bytes = checkpoint.bytes(*checkpoint.find(name));
  std::vector<T> result(bytes.size() / sizeof(T));
  std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Convert, WritesWeightsConfigAndTokenizer) {
  const test::TemporaryFolder folder;
  write_input(folder, "in/model.safetensors", 3);
  folder.write("in/config.json", R"({"a":1})");
  folder.write("in/tokenizer.json", "{}");
  folder.write("in/training_args.bin", "private");
  const auto result = convert(folder.path() / "in", folder.path() / "new" / "out", {});
  EXPECT_THAT(names_in(folder.path() / "new"), ElementsAre("out"));
  EXPECT_THAT(names_in(folder.path() / "new" / "out"),
              ElementsAre("config.json", "model.safetensors", "tokenizer.json"));
  EXPECT_EQ(read_file(folder.path() / "new" / "out" / "config.json", 100), R"({"a":1})");
  EXPECT_EQ(result.tensors, 1U);
  EXPECT_EQ(result.bytes, 12U);
  EXPECT_THAT(result.files, Contains("model.safetensors"));
  const auto checkpoint = Checkpoint::open(folder.path() / "new" / "out");
  EXPECT_THAT(values<float>(checkpoint, "w"), ElementsAre(0, 1, 2));
  EXPECT_EQ(checkpoint.metadata().dump(), R"({"format":"pt"})");
}

TEST(Convert, CastsFloatsAndSaysSoInTheConfig) {
  const test::TemporaryFolder folder;
  write_input(folder, "in/model.safetensors", 3);
  folder.write("in/config.json", R"({"torch_dtype":"float32","eps":1e-05})");
  ConvertOptions options;
  options.dtype = Dtype::kBF16;
  convert(folder.path() / "in", folder.path() / "out", options);
  const auto checkpoint = Checkpoint::open(folder.path() / "out");
  EXPECT_EQ(checkpoint.find("w")->dtype, Dtype::kBF16);
  EXPECT_THAT(values<std::uint16_t>(checkpoint, "w"), ElementsAre(0, 0x3f80, 0x4000));
  EXPECT_EQ(read_json(folder.path() / "out" / "config.json").dump(),
            R"({"torch_dtype":"bfloat16","eps":1e-05})");
  options.dtype = Dtype::kI32;
  test::expect_error(ErrorKind::kUsage, HasSubstr("cannot cast to I32"),
                     [&] { convert(folder.path() / "in", folder.path() / "out2", options); });
}

TEST(Convert, RefusesAPlaceThatIsTaken) {
  const test::TemporaryFolder folder;
  write_input(folder, "in/model.safetensors", 1);
  folder.write("full/file", "x");
  fs::create_directory(folder.path() / "empty");
  for (const char* taken : {"full", "full/file", "in", "full/"}) {
    test::expect_error(ErrorKind::kUsage, HasSubstr("there already"),
                       [&] { convert(folder.path() / "in", folder.path() / taken, {}); });
  }
  convert(folder.path() / "in", folder.path() / "empty/", {});
  EXPECT_TRUE(fs::exists(folder.path() / "empty" / "model.safetensors"));
}

TEST(Convert, LeavesNothingBehindWhenItFails) {
  const test::TemporaryFolder folder;
  folder.write("in/model.safetensors", "broken");
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("model.safetensors"),
                     [&] { convert(folder.path() / "in", folder.path() / "out", {}); });
  folder.write("in/config.json", "not JSON");
  write_input(folder, "in/model.safetensors", 1);
  ConvertOptions options;
  options.dtype = Dtype::kF16;
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("config.json"),
                     [&] { convert(folder.path() / "in", folder.path() / "out", options); });
  EXPECT_THAT(names_in(folder.path()), ElementsAre("in"));
}

TEST(Convert, RemovesWhatAKilledOneLeftAndNotWhatARunningOneFills) {
  const test::TemporaryFolder folder;
  write_input(folder, "in/model.safetensors", 1);
  folder.write(".out.haul-unfinished-abcdef/half", "x");
  folder.write(".out.haul-unfinished-ghijkl/half", "x");
  folder.write(".other.haul-unfinished-abcdef/half", "x");
  const fs::path running = folder.path() / ".out.haul-unfinished-ghijkl";
  const int lock = ::open(running.c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0);
  convert(folder.path() / "in", folder.path() / "out", {});
  ::close(lock);
  EXPECT_THAT(names_in(folder.path()), ElementsAre(".other.haul-unfinished-abcdef",
                                                   ".out.haul-unfinished-ghijkl", "in", "out"));
}

// A checkpoint of one file with float values 0, 1, 2, … and one view of it.
class View {
 public:
  explicit View(int count) {
    std::string data;
    for (int i = 0; i < count; ++i) {
      const auto value = static_cast<float>(i);
      data.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    path_ = folder_.write("data", data);
  }

  std::vector<float> stream(Shape shape, std::vector<std::int64_t> strides, Bytes first,
                            Bytes spanned) const {
    CheckpointBuilder builder(CheckpointFormat::kTorchZip);
    StoredTensor tensor;
    tensor.name = "w";
    tensor.file = builder.add_file(path_);
    tensor.offset = first * 4;
    tensor.size = spanned * 4;
    tensor.shape = std::move(shape);
    tensor.strides = std::move(strides);
    builder.add(tensor);
    const Checkpoint checkpoint = std::move(builder).build();
    std::vector<float> result;
    stream_tensor(checkpoint, checkpoint.tensors()[0], Dtype::kF32, [&](auto piece) {
      const std::size_t old = result.size();
      result.resize(old + piece.size() / 4);
      std::memcpy(result.data() + old, piece.data(), piece.size());
    });
    return result;
  }

 private:
  test::TemporaryFolder folder_;
  fs::path path_;
};

TEST(StreamTensor, MakesViewsContiguous) {
  const View view(24);
  EXPECT_THAT(view.stream({2, 3}, {3, 1}, 6, 6), ElementsAre(6, 7, 8, 9, 10, 11));
  EXPECT_THAT(view.stream({3, 2}, {1, 3}, 0, 6), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(view.stream({2, 2}, {12, 5}, 1, 18), ElementsAre(1, 6, 13, 18));
  EXPECT_THAT(view.stream({2, 2}, {0, 1}, 4, 2), ElementsAre(4, 5, 4, 5));
  EXPECT_THAT(view.stream({2, 1, 2}, {1, 9, 4}, 0, 6), ElementsAre(0, 4, 1, 5));
  EXPECT_THAT(view.stream({3}, {0}, 7, 1), ElementsAre(7, 7, 7));
  EXPECT_TRUE(view.stream({0, 3}, {5, 7}, 0, 0).empty());
  EXPECT_THAT(view.stream({}, {}, 5, 1), ElementsAre(5));
}

TEST(StreamTensor, CastsScalarsAndOddCounts) {
  const test::TemporaryFolder folder;
  for (const int count : {1, 2, 3, 33}) {
    const std::string number = std::to_string(count);
    write_input(folder, number + "/model.safetensors", count);
    const Checkpoint checkpoint = Checkpoint::open(folder.path() / number);
    for (const Dtype dtype : {Dtype::kF16, Dtype::kBF16, Dtype::kF64}) {
      Bytes written = 0;
      stream_tensor(checkpoint, *checkpoint.find("w"), dtype,
                    [&](auto piece) { written += piece.size(); });
      EXPECT_EQ(written, static_cast<Bytes>(count * bits(dtype) / 8));
    }
  }
}

TEST(StreamTensor, CutsLargeViewsIntoPieces) {
  constexpr int kRows = 1700;
  constexpr int kColumns = 1500;  // 10.2 MB, more than a piece
  const View view(kRows * kColumns);
  const auto result = view.stream({kColumns, kRows}, {1, kColumns}, 0, kRows * kColumns);
  ASSERT_EQ(result.size(), static_cast<std::size_t>(kRows * kColumns));
  for (int c = 0; c < kColumns; ++c) {
    for (int r = 0; r < kRows; ++r) {
      ASSERT_EQ(result[static_cast<std::size_t>(c * kRows + r)],
                static_cast<float>(r * kColumns + c));
    }
  }
}

TEST(Convert, WritesAGgufModelAsTransformersHasIt) {
  const test::TemporaryFolder folder;
  test::GgufBytes file;
  file.text("general.architecture", "gpt2").u32("gpt2.block_count", 1);
  file.u32("gpt2.context_length", 16).u32("gpt2.embedding_length", 2);
  file.u32("gpt2.feed_forward_length", 8).u32("gpt2.attention.head_count", 1);
  file.f32("gpt2.attention.layer_norm_epsilon", 1);
  file.floats("token_embd.weight", {2, 1}, {1, 2});
  file.floats("blk.0.attn_qkv.weight", {2, 3}, {0, 1, 2, 3, 4, 5});
  folder.write("in/m.gguf", file.bytes());
  folder.write("in/config.json", R"({"model_type":"of another file"})");
  ConvertOptions options;
  options.dtype = Dtype::kF64;
  const auto result = convert(folder.path() / "in", folder.path() / "out", options);
  EXPECT_THAT(result.files, ElementsAre("config.json", "model.safetensors"));
  EXPECT_TRUE(result.notes.empty());
  const Checkpoint out = Checkpoint::open(folder.path() / "out");
  ASSERT_NE(out.find("transformer.h.0.attn.c_attn.weight"), nullptr);
  EXPECT_EQ(out.find("transformer.h.0.attn.c_attn.weight")->shape, (Shape{2, 3}));
  EXPECT_THAT(values<double>(out, "transformer.h.0.attn.c_attn.weight"),
              ElementsAre(0, 2, 4, 1, 3, 5));
  EXPECT_THAT(values<double>(out, "transformer.wte.weight"), ElementsAre(1, 2));
  const Json config = read_json(folder.path() / "out" / "config.json");
  EXPECT_EQ(config.at("model_type"), "gpt2");
  EXPECT_EQ(config.at("dtype"), "float64");
}

TEST(Convert, KeepsTheNamesOfAGgufModelThatItDoesNotKnowAndSaysSo) {
  const test::TemporaryFolder folder;
  test::GgufBytes file;
  file.text("general.architecture", "unheard").floats("blk.0.x", {2}, {1, 2});
  folder.write("in/m.gguf", file.bytes());
  const auto result = convert(folder.path() / "in", folder.path() / "out", {});
  EXPECT_THAT(result.files, ElementsAre("model.safetensors"));
  EXPECT_THAT(result.notes, ElementsAre(HasSubstr("names and layout stay")));
  EXPECT_NE(Checkpoint::open(folder.path() / "out").find("blk.0.x"), nullptr);
}

test::GgufBytes with_tokenizer(std::string_view kind) {
  test::GgufBytes file;
  file.text("general.architecture", "unheard").floats("blk.0.x", {2}, {1, 2});
  file.text("tokenizer.ggml.model", kind).texts("tokenizer.ggml.tokens", {"a", "b", "ab"});
  return file.texts("tokenizer.ggml.merges", {"a b"});
}

TEST(Convert, WritesTheTokenizerInsideAGgufFileAndNoneOfAnother) {
  const test::TemporaryFolder folder;
  folder.write("in/m.gguf", with_tokenizer("gpt2").bytes());
  for (const char* name : {"tokenizer.json", "special_tokens_map.json", "chat_template.jinja"}) {
    folder.write(std::string("in/") + name, "of another model");
  }
  const auto result = convert(folder.path() / "in" / "m.gguf", folder.path() / "out", {});
  EXPECT_THAT(result.files,
              ElementsAre("tokenizer.json", "tokenizer_config.json", "model.safetensors"));
  EXPECT_THAT(Tokenizer::load(folder.path() / "out").encode_ids("abb"), ElementsAre(2, 1));
}

TEST(Convert, CopiesTheTokenizerBesideAGgufFileWhoseOwnItDoesNotKnow) {
  const test::TemporaryFolder folder;
  folder.write("in/m.gguf", with_tokenizer("rwkv").bytes());
  folder.write("in/tokenizer.json", "{}");
  const auto result = convert(folder.path() / "in" / "m.gguf", folder.path() / "out", {});
  EXPECT_THAT(result.files, ElementsAre("tokenizer.json", "model.safetensors"));
  EXPECT_THAT(result.notes, testing::Contains(HasSubstr("no tokenizer is written")));
}

}  // namespace
}  // namespace haul::core
