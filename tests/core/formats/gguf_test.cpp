#include "core/formats/gguf.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/temporary_folder.h"

namespace haul::core {
namespace {

using test::as_bytes;
using test::expect_error;
using test::GgufBytes;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

void expect_refused(ErrorKind kind, const std::string& bytes,
                    const testing::Matcher<const std::string&>& message) {
  expect_error(kind, AllOf(testing::StartsWith("m.gguf: "), message),
               [&] { parse_gguf(as_bytes(bytes), "m.gguf"); });
}

void expect_corrupt(const std::string& bytes, const testing::Matcher<const std::string&>& message) {
  expect_refused(ErrorKind::kCorrupt, bytes, message);
}

void expect_unsupported(const std::string& bytes,
                        const testing::Matcher<const std::string&>& message) {
  expect_refused(ErrorKind::kUnsupported, bytes, message);
}

TEST(Gguf, ReadsEveryKindOfScalar) {
  GgufBytes file;
  file.entry("u8", 0, GgufBytes::raw<std::uint8_t>(200))
      .entry("i8", 1, GgufBytes::raw<std::int8_t>(-5))
      .entry("u16", 2, GgufBytes::raw<std::uint16_t>(60000))
      .entry("i16", 3, GgufBytes::raw<std::int16_t>(-300))
      .entry("u32", 4, GgufBytes::raw<std::uint32_t>(4000000000))
      .entry("i32", 5, GgufBytes::raw<std::int32_t>(-70000))
      .entry("f32", 6, GgufBytes::raw<float>(0.25f))
      .entry("bool", 7, GgufBytes::raw<std::uint8_t>(1))
      .entry("string", 8, GgufBytes::string("né"))
      .entry("u64", 10, GgufBytes::raw<std::uint64_t>(std::uint64_t{1} << 63))
      .entry("i64", 11, GgufBytes::raw<std::int64_t>(-1))
      .entry("f64", 12, GgufBytes::raw<double>(1e300));
  const std::string bytes = file.bytes();
  const GgufHeader header = parse_gguf(as_bytes(bytes), "m.gguf");
  EXPECT_EQ(header.json().dump(),
            R"({"u8":200,"i8":-5,"u16":60000,"i16":-300,"u32":4000000000,"i32":-70000,)"
            R"("f32":0.25,"bool":true,"string":"né","u64":9223372036854775808,"i64":-1,)"
            R"("f64":1e+300})");
  EXPECT_EQ(header.find("i8")->integer(), -5);
  EXPECT_EQ(header.find("u64")->integer(), std::nullopt);
  EXPECT_EQ(header.find("f32")->number(), 0.25);
  EXPECT_EQ(header.find("f32")->integer(), std::nullopt);
  EXPECT_EQ(header.find("string")->text(), "né");
  EXPECT_EQ(header.find("string")->number(), std::nullopt);
  EXPECT_EQ(header.find("absent"), nullptr);
}

TEST(Gguf, ArraysAreViewsAndLargeOnesStayOutOfTheJson) {
  GgufBytes file;
  std::vector<std::string> tokens;
  for (int i = 0; i < 65; ++i) tokens.push_back("token" + std::to_string(i));
  file.texts("tokens", tokens).texts("few", {"a", "", "b"});
  file.entry("scores", 9,
             GgufBytes::raw<std::uint32_t>(6) + GgufBytes::raw<std::uint64_t>(2) +
                 GgufBytes::raw<float>(-1.5f) + GgufBytes::raw<float>(2));
  file.entry("types", 9,
             GgufBytes::raw<std::uint32_t>(5) + GgufBytes::raw<std::uint64_t>(2) +
                 GgufBytes::raw<std::int32_t>(-3) + GgufBytes::raw<std::int32_t>(4));
  const std::string bytes = file.bytes();
  const GgufHeader header = parse_gguf(as_bytes(bytes), "m.gguf");
  EXPECT_EQ(header.json().dump(), R"({"few":["a","","b"],"scores":[-1.5,2.0],"types":[-3,4]})");
  const auto texts = header.find("tokens")->texts();
  ASSERT_EQ(texts.size(), 65u);
  EXPECT_EQ(texts[64], "token64");
  EXPECT_GE(texts[64].data(), bytes.data());
  EXPECT_LT(texts[64].data(), bytes.data() + bytes.size());
  EXPECT_THAT(header.find("scores")->numbers(), ElementsAre(-1.5, 2));
  EXPECT_THAT(header.find("types")->integers(), ElementsAre(-3, 4));
  EXPECT_TRUE(header.find("types")->texts().empty());
  EXPECT_TRUE(header.find("scores")->integers().empty());
}

TEST(Gguf, LeavesStringsThatAreNotUtf8OutOfTheJson) {
  GgufBytes file;
  file.text("bad", "\xff\xfe").texts("list", {"\xc0\xaf"}).text("good", "x");
  const std::string bytes = file.bytes();
  const GgufHeader header = parse_gguf(as_bytes(bytes), "m.gguf");
  EXPECT_EQ(header.json().dump(), R"({"good":"x"})");
  EXPECT_EQ(header.find("bad")->text(), "\xff\xfe");
}

TEST(Gguf, GivesShapesInTorchOrderAndOffsetsFromTheStartOfTheFile) {
  GgufBytes file;
  file.version = 2;
  file.floats("a", {3, 2}, {0, 1, 2, 3, 4, 5}).floats("scalar", {}, {7});
  file.tensor({"q", {64, 3}, 2, file.data.size()});
  file.data.resize(file.data.size() + 108);
  const std::string bytes = file.bytes();
  const GgufHeader header = parse_gguf(as_bytes(bytes), "m.gguf");
  EXPECT_EQ(header.version, 2u);
  ASSERT_EQ(header.tensors.size(), 3u);
  const StoredTensor& a = header.tensors[0];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.shape, (Shape{2, 3}));
  EXPECT_EQ(a.dtype, Dtype::kF32);
  EXPECT_EQ(a.size, 24u);
  float second = 0;
  std::memcpy(&second, bytes.data() + a.offset + 4, 4);
  EXPECT_EQ(second, 1);
  EXPECT_EQ(header.tensors[1].shape, Shape{});
  EXPECT_EQ(header.tensors[1].size, 4u);
  EXPECT_EQ(header.tensors[2].coding, Coding::kQ4_0);
  EXPECT_EQ(header.tensors[2].size, 108u);
  EXPECT_EQ(header.tensors[2].shape, (Shape{3, 64}));
}

TEST(Gguf, HonoursTheAlignmentThatTheFileNames) {
  GgufBytes file;
  file.alignment = 8;
  file.u32("general.alignment", 8).tensor({"a", {1}, 0, 0}).tensor({"b", {1}, 0, 8});
  file.data.resize(12);
  const std::string bytes = file.bytes();
  const GgufHeader header = parse_gguf(as_bytes(bytes), "m.gguf");
  EXPECT_EQ(header.tensors[1].offset + 4, bytes.size());
}

TEST(Gguf, OpensAFile) {
  const test::TemporaryFolder folder;
  GgufBytes file;
  file.floats("a", {2}, {1, 2});
  const GgufFile gguf(folder.write("a.gguf", file.bytes()));
  const auto bytes = gguf.bytes(gguf.header().tensors[0]);
  ASSERT_EQ(bytes.size(), 8u);
  float second = 0;
  std::memcpy(&second, bytes.data() + 4, 4);
  EXPECT_EQ(second, 2);
}

TEST(Gguf, RefusesOtherMagic) {
  GgufBytes file;
  file.magic = "PK\x03z";
  expect_corrupt(file.bytes(), HasSubstr("begins with 'PK\\x03z'"));
  expect_corrupt("GG", HasSubstr("begins with 'GG'"));
  expect_corrupt("", HasSubstr("no GGUF file"));
}

TEST(Gguf, SaysThatOldGgmlFilesAreNotGguf) {
  GgufBytes file;
  file.magic = "tjgg";
  expect_unsupported(file.bytes(), HasSubstr("before GGUF"));
}

TEST(Gguf, NamesVersionsThatItDoesNotRead) {
  GgufBytes file;
  file.version = 1;
  expect_unsupported(file.bytes(), HasSubstr("version 1"));
  file.version = 4;
  expect_unsupported(file.bytes(), HasSubstr("version 4"));
  file.version = 0;
  expect_unsupported(file.bytes(), HasSubstr("version 0"));
}

TEST(Gguf, SaysThatAFileIsBigEndian) {
  GgufBytes file;
  file.version = 0x03000000;
  expect_unsupported(file.bytes(), HasSubstr("big-endian"));
}

TEST(Gguf, RefusesCountsThatTheFileCannotHold) {
  GgufBytes file;
  file.entry_count = std::uint64_t{1} << 60;
  expect_corrupt(file.bytes(), HasSubstr("1152921504606846976 metadata entries"));
  file.entry_count = 0;
  file.tensor_count = ~std::uint64_t{0};
  expect_corrupt(file.bytes(), HasSubstr("18446744073709551615 tensors"));
}

TEST(Gguf, RefusesAFileCutAtEveryByteOfItsHeader) {
  GgufBytes file;
  file.text("general.architecture", "llama").texts("tokens", {"a", "b"}).u32("n", 3);
  file.floats("a", {2, 2}, {1, 2, 3, 4});
  const std::string bytes = file.bytes();
  for (std::size_t size = 0; size < bytes.size() - 16; ++size) {
    expect_corrupt(bytes.substr(0, size), testing::_);
  }
}

TEST(Gguf, RefusesStringsLongerThanTheFile) {
  GgufBytes key;
  key.entry("k", 8, GgufBytes::raw<std::uint64_t>(~std::uint64_t{0}));
  expect_corrupt(key.bytes(), AllOf(HasSubstr("key 'k'"), HasSubstr("18446744073709551615 bytes")));
  GgufBytes array;
  array.entry("tokens", 9,
              GgufBytes::raw<std::uint32_t>(8) + GgufBytes::raw<std::uint64_t>(1) +
                  GgufBytes::raw<std::uint64_t>(100000) + "abc");
  expect_corrupt(array.bytes(), AllOf(HasSubstr("key 'tokens'"), HasSubstr("string of an array")));
}

TEST(Gguf, RefusesArraysLongerThanTheFile) {
  GgufBytes file;
  file.entry("a", 9,
             GgufBytes::raw<std::uint32_t>(10) +
                 GgufBytes::raw<std::uint64_t>((std::uint64_t{1} << 61) + 1));
  expect_corrupt(file.bytes(), AllOf(HasSubstr("key 'a'"), HasSubstr("2305843009213693953")));
}

TEST(Gguf, RefusesNestedArrays) {
  GgufBytes file;
  file.entry("deep", 9, GgufBytes::raw<std::uint32_t>(9) + GgufBytes::raw<std::uint64_t>(0));
  expect_unsupported(file.bytes(), AllOf(HasSubstr("key 'deep'"), HasSubstr("array of arrays")));
}

TEST(Gguf, RefusesUnknownValueTypes) {
  GgufBytes file;
  file.entry("odd", 13, "");
  expect_corrupt(file.bytes(), AllOf(HasSubstr("key 'odd'"), HasSubstr("value type 13")));
}

TEST(Gguf, RefusesDuplicateKeysAndNames) {
  GgufBytes keys;
  keys.u32("k", 1).u32("k", 1);
  expect_corrupt(keys.bytes(), AllOf(HasSubstr("key 'k'"), HasSubstr("twice")));
  GgufBytes names;
  names.floats("a", {1}, {1}).floats("a", {1}, {1});
  expect_corrupt(names.bytes(), AllOf(HasSubstr("tensor 'a'"), HasSubstr("twice")));
}

TEST(Gguf, RefusesNamesThatAreNotUtf8) {
  GgufBytes file;
  file.floats("\xed\xa0\x80", {1}, {1});
  expect_corrupt(file.bytes(), HasSubstr("not UTF-8"));
}

TEST(Gguf, RefusesAlignmentsThatAreNoPowerOfTwo) {
  for (const std::uint32_t alignment : {0u, 3u, 48u}) {
    GgufBytes file;
    file.u32("general.alignment", alignment);
    expect_corrupt(file.bytes(), HasSubstr("power of 2"));
  }
  GgufBytes file;
  file.text("general.alignment", "32");
  expect_corrupt(file.bytes(), HasSubstr("uint32"));
}

TEST(Gguf, RefusesTooManyDimensions) {
  GgufBytes file;
  file.tensor({"t", {1, 1, 1, 1, 1}, 0, 0});
  file.data.resize(4);
  expect_corrupt(file.bytes(), AllOf(HasSubstr("tensor 't'"), HasSubstr("5 dimensions")));
}

TEST(Gguf, RefusesShapesThatOverflow) {
  GgufBytes product;
  product.tensor({"t", {1ull << 40, 1ull << 40}, 0, 0});
  expect_corrupt(product.bytes(), AllOf(HasSubstr("tensor 't'"), HasSubstr("overflows")));
  GgufBytes bytes;
  bytes.tensor({"t", {1ull << 62}, 28, 0});
  expect_corrupt(bytes.bytes(), AllOf(HasSubstr("tensor 't'"), HasSubstr("overflows")));
  GgufBytes negative;
  negative.tensor({"t", {1ull << 63}, 0, 0});
  expect_corrupt(negative.bytes(), AllOf(HasSubstr("tensor 't'"), HasSubstr("negative")));
}

TEST(Gguf, RefusesRowsThatAreNotWholeBlocks) {
  GgufBytes file;
  file.tensor({"t", {48, 4}, 12, 0});
  file.data.resize(4096);
  expect_corrupt(file.bytes(), AllOf(HasSubstr("tensor 't'"), HasSubstr("48"), HasSubstr("256"),
                                     HasSubstr("Q4_K")));
}

TEST(Gguf, RefusesUnalignedOffsets) {
  GgufBytes file;
  file.tensor({"t", {1}, 0, 4});
  file.data.resize(64);
  expect_corrupt(file.bytes(),
                 AllOf(HasSubstr("tensor 't'"), HasSubstr("offset 4"), HasSubstr("alignment 32")));
}

TEST(Gguf, RefusesDataPastTheEndOfTheFile) {
  GgufBytes file;
  file.tensor({"t", {9}, 0, 32});
  file.data.resize(64);
  expect_corrupt(file.bytes(), AllOf(HasSubstr("tensor 't'"), HasSubstr("past the end")));
  GgufBytes far;
  far.tensor({"t", {1}, 0, ~std::uint64_t{0} - 31});
  expect_corrupt(far.bytes(), AllOf(HasSubstr("tensor 't'"), HasSubstr("past the end")));
}

TEST(Gguf, RefusesTensorsThatOverlap) {
  GgufBytes file;
  file.tensor({"later", {8}, 0, 32}).tensor({"first", {9}, 0, 0});
  file.data.resize(64);
  expect_corrupt(file.bytes(), HasSubstr("tensors 'first' and 'later' overlap"));
  GgufBytes same;
  same.tensor({"a", {1}, 0, 0}).tensor({"b", {1}, 0, 0});
  same.data.resize(64);
  expect_corrupt(same.bytes(), HasSubstr("overlap"));
}

TEST(Gguf, AcceptsTensorsWithoutElementsAnywhere) {
  GgufBytes file;
  file.tensor({"empty", {0}, 0, 0}).tensor({"a", {1}, 0, 0});
  file.data.resize(4);
  const std::string bytes = file.bytes();
  EXPECT_EQ(parse_gguf(as_bytes(bytes), "m.gguf").tensors[0].size, 0u);
}

TEST(Gguf, NamesTensorTypesThatItDoesNotRead) {
  const std::pair<std::uint32_t, std::string> types[] = {
      {16, "IQ2_XXS"}, {34, "TQ1_0"}, {39, "MXFP4"}, {5, "Q4_3"}, {9, "Q8_1"}};
  for (const auto& [id, name] : types) {
    GgufBytes file;
    file.tensor({"blk.0.w", {256}, id, 0});
    expect_unsupported(file.bytes(), AllOf(HasSubstr("tensor 'blk.0.w'"), HasSubstr(name)));
  }
  GgufBytes file;
  file.tensor({"t", {256}, 4711, 0});
  expect_unsupported(file.bytes(), AllOf(HasSubstr("tensor 't'"), HasSubstr("type 4711")));
}

}  // namespace
}  // namespace haul::core
