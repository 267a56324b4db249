#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/describe/describe.h"
#include "haul/description.h"
#include "tests/support/expect_error.h"

namespace haul {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(TreeFile, WritesWhatItReads) {
  const std::string text = R"({"class": "Model",
    "parameters": {"w": {"dtype": "F32", "shape": [4, 3]}},
    "buffers": {"b": {"dtype": "I64", "shape": [], "persistent": false}},
    "children": {"linear1": {"class": "Linear",
                             "parameters": {"weight": {"dtype": "BF16", "shape": [2]}}}},
    "tied": [["w", "linear1.weight"]], "no_split": ["Linear"]})";
  const Description read = read_tree(text, "tree.json");
  EXPECT_EQ(read.root.children.front().name, "linear1");
  EXPECT_EQ(read.root.children.front().parameters.front().dtype, Dtype::kBF16);
  EXPECT_FALSE(read.root.buffers.front().persistent);
  EXPECT_THAT(read.tied, ElementsAre(ElementsAre("w", "linear1.weight")));
  EXPECT_THAT(read.no_split, ElementsAre("Linear"));
  const std::string written = write_tree(read);
  EXPECT_EQ(write_tree(read_tree(written, "again")), written);
}

TEST(TreeFile, KeepsAFamilysTreeWhole) {
  const core::Json config = core::parse_json(
      R"({"architectures": ["BertForMaskedLM"], "model_type": "bert"})", "config.json");
  const std::string written = write_tree(core::describe_config(config, "config.json"));
  EXPECT_EQ(write_tree(read_tree(written, "tree.json")), written);
}

TEST(TreeFile, NamesThePlaceOfWhatItRefuses) {
  const auto refused = [](const char* text, const char* place, const char* why) {
    test::expect_error(ErrorKind::kCorrupt,
                       AllOf(HasSubstr("tree.json"), HasSubstr(place), HasSubstr(why)),
                       [&] { read_tree(text, "tree.json"); });
  };
  refused(R"({})", "'(root)'", "no \"class\"");
  refused(R"([])", "'(root)'", "not an object");
  refused(R"({"class": "A", "children": {"x": {"class": "B", "z": 1}}})", "'x'", "unknown key");
  refused(R"({"class": "A", "children": {"x.y": {"class": "B"}}})", "'(root)'", "has a dot");
  refused(R"({"class": "A", "parameters": {"w": {"dtype": "F33", "shape": []}}})", "'w'", "F33");
  refused(R"({"class": "A", "parameters": {"w": {"dtype": "F32", "shape": [-1]}}})", "'w'",
          "whole numbers");
  refused(R"({"class": "A", "parameters": {"w": {"dtype": "F32",
              "shape": [1099511627776, 1099511627776]}}})",
          "'w'", "2^56");
  refused(R"({"class": "A", "parameters": {"w": {"dtype": "F32"}}})", "'w'", "needs");
}

TEST(TreeFile, RefusesMoreThanSumsInBytesCanHold) {
  std::string text = R"({"class": "A", "parameters": {"w0": {"dtype": "F32", "shape": [1]})";
  for (int i = 1; i < 8; ++i) {
    text += ", \"w" + std::to_string(i) + R"(": {"dtype": "F32", "shape": [72057594037927936]})";
  }
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("more than 2^56 elements"),
                     [&] { read_tree(text + "}}", "tree.json"); });
}

}  // namespace
}  // namespace haul
