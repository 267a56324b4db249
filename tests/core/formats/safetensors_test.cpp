#include "core/formats/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/core/formats/safetensors_text.h"
#include "tests/support/expect_error.h"

namespace haul::core {
namespace {

using test::safetensors_file;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

SafetensorsHeader read(const std::string& file) {
  return read_safetensors_header(std::as_bytes(std::span(file.data(), file.size())), "f");
}

void expect_refused(const std::string& file, const testing::Matcher<const std::string&>& message) {
  test::expect_error(ErrorKind::kCorrupt, AllOf(HasSubstr("f: "), message), [&] { read(file); });
}

TEST(SafetensorsHeader, GivesTensorsInTheOrderOfTheirBytes) {
  const auto header = read(safetensors_file(
      R"({"__metadata__":{"format":"pt"},
          "late":{"dtype":"BF16","shape":[1,2],"data_offsets":[4,8]},
          "early":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}   )",
      "abcdefgh"));
  ASSERT_EQ(header.tensors.size(), 2U);
  EXPECT_EQ(header.tensors[0].name, "early");
  EXPECT_EQ(header.tensors[0].dtype, Dtype::kF32);
  EXPECT_THAT(header.tensors[0].shape, IsEmpty());
  EXPECT_EQ(header.tensors[1].name, "late");
  EXPECT_THAT(header.tensors[1].shape, ElementsAre(1, 2));
  EXPECT_EQ(header.tensors[1].offset, header.tensors[0].offset + 4);
  EXPECT_EQ(header.tensors[1].size, 4U);
  EXPECT_THAT(header.metadata, ElementsAre(Pair("format", "pt")));
}

TEST(SafetensorsHeader, ReadsEveryDtype) {
  for (int i = 0; i < kDtypeCount; ++i) {
    const auto dtype = static_cast<Dtype>(i);
    const auto size = static_cast<std::size_t>(bits(dtype));  // of 8 elements
    const auto header = read(safetensors_file(
        fmt::format(R"({{"t":{{"dtype":"{}","shape":[8],"data_offsets":[0,{}]}}}})", name(dtype),
                    size),
        std::string(size, 'x')));
    EXPECT_EQ(header.tensors.at(0).dtype, dtype);
    EXPECT_EQ(header.tensors.at(0).size, size);
  }
}

TEST(SafetensorsHeader, AllowsTensorsWithoutElementsAndFilesWithoutTensors) {
  EXPECT_EQ(read(safetensors_file(
                     R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},
                         "none":{"dtype":"F32","shape":[0,4],"data_offsets":[0,0]},
                         "end":{"dtype":"F32","shape":[0],"data_offsets":[2,2]}})",
                     "ab"))
                .tensors.size(),
            3U);
  EXPECT_THAT(read(safetensors_file("{}")).tensors, IsEmpty());
  EXPECT_THAT(read(safetensors_file(R"({"__metadata__":null})")).metadata, IsEmpty());
}

TEST(SafetensorsHeader, RefusesFilesThatAreTooShort) {
  expect_refused("", HasSubstr("too few"));
  expect_refused(std::string("\x02\0\0", 3), HasSubstr("too few"));
  expect_refused(std::string("\x09\0\0\0\0\0\0\0{}", 10),
                 HasSubstr("claims 9 bytes, and 2 follow"));
}

TEST(SafetensorsHeader, RefusesAHeaderOver100Megabytes) {
  // 100,000,001
  expect_refused(std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10),
                 HasSubstr("claims 100000001 bytes, and 100,000,000 are allowed"));
  expect_refused(std::string(8, '\xff') + "{}", HasSubstr("100,000,000 are allowed"));
}

TEST(SafetensorsHeader, RefusesAHeaderThatIsNotOneObject) {
  expect_refused(safetensors_file(" {}"), HasSubstr("does not start with '{'"));
  expect_refused(safetensors_file("[]"), HasSubstr("does not start with '{'"));
  expect_refused(safetensors_file(""), HasSubstr("does not start with '{'"));
  expect_refused(safetensors_file("{"), HasSubstr("not valid JSON"));
  expect_refused(safetensors_file(std::string("{}\0", 3)), HasSubstr("not valid JSON"));
  expect_refused(safetensors_file("{\"\xff\":{}}"), HasSubstr("not valid JSON"));
}

TEST(SafetensorsHeader, RefusesMetadataThatIsNotStringToString) {
  expect_refused(safetensors_file(R"({"__metadata__":{"n":1}})"),
                 HasSubstr("__metadata__ 'n' is not a string"));
  expect_refused(safetensors_file(R"({"__metadata__":[]})"), HasSubstr("__metadata__ is not"));
}

TEST(SafetensorsHeader, RefusesAnUnknownDtypeByName) {
  test::expect_error(ErrorKind::kUnsupported, AllOf(HasSubstr("'w'"), HasSubstr("'F3'")), [&] {
    read(safetensors_file(R"({"w":{"dtype":"F3","shape":[1],"data_offsets":[0,4]}})", "abcd"));
  });
}

TEST(SafetensorsHeader, RefusesEntriesWithMissingOrOddFields) {
  const auto entry = [](std::string_view text) {
    return safetensors_file(fmt::format(R"({{"w":{}}})", text), "abcd");
  };
  expect_refused(entry("1"), HasSubstr("tensor 'w': its entry is not a JSON object"));
  expect_refused(entry(R"({"shape":[1],"data_offsets":[0,4]})"), HasSubstr("no dtype"));
  expect_refused(entry(R"({"dtype":7,"shape":[1],"data_offsets":[0,4]})"), HasSubstr("no dtype"));
  expect_refused(entry(R"({"dtype":"F32","data_offsets":[0,4]})"), HasSubstr("no shape"));
  expect_refused(entry(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})"),
                 HasSubstr("dimension 0"));
  expect_refused(entry(R"({"dtype":"F32","shape":[1,1.0],"data_offsets":[0,4]})"),
                 HasSubstr("dimension 1"));
  expect_refused(entry(R"({"dtype":"F32","shape":[1]})"), HasSubstr("not two numbers"));
  expect_refused(entry(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4,4]})"),
                 HasSubstr("not two numbers"));
  expect_refused(entry(R"({"dtype":"F32","shape":[1],"data_offsets":[-4,0]})"),
                 HasSubstr("not two numbers"));
}

TEST(SafetensorsHeader, RefusesATensorGivenTwice) {
  expect_refused(safetensors_file(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
                                      "w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                  "ab"),
                 HasSubstr("'w' is given twice"));
}

TEST(SafetensorsHeader, RefusesOffsetsThatRunBackwardsOrBeyondTheFile) {
  expect_refused(safetensors_file(R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[2,0]}})", "ab"),
                 AllOf(HasSubstr("tensor 'w'"), HasSubstr("run backwards")));
  expect_refused(safetensors_file(R"({"w":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", "ab"),
                 AllOf(HasSubstr("tensor 'w'"), HasSubstr("[0, 3]"), HasSubstr("2 bytes of data")));
  expect_refused(
      safetensors_file(
          R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551614,18446744073709551615]}})",
          "ab"),
      AllOf(HasSubstr("tensor 'w'"), HasSubstr("reach beyond")));
}

TEST(SafetensorsHeader, RefusesAWrongByteCount) {
  expect_refused(
      safetensors_file(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "abcd"),
      AllOf(HasSubstr("tensor 'w'"), HasSubstr("[2] of F32 needs 8 bytes"), HasSubstr("give 4")));
}

TEST(SafetensorsHeader, RefusesSubByteElementsThatFillNoWholeBytes) {
  expect_refused(safetensors_file(R"({"w":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", "ab"),
                 AllOf(HasSubstr("tensor 'w'"), HasSubstr("whole number of bytes")));
  expect_refused(
      safetensors_file(R"({"w":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,4]}})", "abcd"),
      AllOf(HasSubstr("tensor 'w'"), HasSubstr("needs 3 bytes")));
}

TEST(SafetensorsHeader, RefusesShapesThatOverflow) {
  expect_refused(
      safetensors_file(
          R"({"w":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})"),
      AllOf(HasSubstr("tensor 'w'"), HasSubstr("below 2^64")));
  // The count of elements fits, the count of bits does not.
  expect_refused(safetensors_file(
                     R"({"w":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})"),
                 HasSubstr("below 2^64"));
  expect_refused(safetensors_file(
                     R"({"w":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,0]}})"),
                 HasSubstr("dimension 0"));
}

TEST(SafetensorsHeader, RefusesHoles) {
  expect_refused(safetensors_file(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
                                      "b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
                                  "abc"),
                 HasSubstr("tensor 'b': 1 bytes before it belong to no tensor"));
  expect_refused(safetensors_file(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "ab"),
                 HasSubstr("tensor 'a': 1 bytes before it"));
}

TEST(SafetensorsHeader, RefusesOverlappingTensors) {
  expect_refused(safetensors_file(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},
                                      "b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                                  "abc"),
                 HasSubstr("tensor 'b': its bytes overlap those of 'a'"));
  expect_refused(safetensors_file(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},
                                      "none":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}})",
                                  "ab"),
                 HasSubstr("tensor 'none'"));
}

TEST(SafetensorsHeader, RefusesDataThatNoTensorHas) {
  expect_refused(
      safetensors_file(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "abc"),
      HasSubstr("the last 2 bytes of the file belong to no tensor"));
  expect_refused(safetensors_file("{}", "x"), HasSubstr("the last 1 bytes"));
}

}  // namespace
}  // namespace haul::core
