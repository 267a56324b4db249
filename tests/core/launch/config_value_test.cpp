#include "core/launch/config_value.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace haul::core {
namespace {

using testing::AllOf;
using testing::HasSubstr;

void expect_refused(const std::string& text, const std::string& line, const std::string& why) {
  SCOPED_TRACE(text.substr(0, 80));
  test::expect_error(ErrorKind::kCorrupt,
                     AllOf(HasSubstr("f.yaml"), HasSubstr(line), HasSubstr(why)),
                     [&] { parse_yaml(text, "f.yaml"); });
}

std::string rewritten(const std::string& text) {
  return write_yaml(parse_yaml(text, "f.yaml"));
}

TEST(ConfigYaml, IsWrittenBackAsItWasRead) {
  const std::string text =
      "fsdp_config:\n"
      "  fsdp_offload_params: false\n"
      "  min: 1e-3\n"
      "  names:\n"
      "    - a\n"
      "    - \"no\"\n"
      "  none: null\n"
      "  path: /a/b.c\n"
      "  empty: []\n"
      "  nothing: {}\n"
      "  when: 2001-12-14 21:59:43.10 -5\n"
      "gpu_ids: \"0,1\"\n";
  EXPECT_EQ(rewritten(text), text);
}

TEST(ConfigYaml, ReadsTheJsonThatThePeerWritesIntoIt) {
  EXPECT_EQ(rewritten("{\n  \"a\": \"no\",\n  \"b\": 1, \"c\": {\"d\": [true, null]}\n}\n"),
            "a: \"no\"\nb: 1\nc:\n  d:\n    - true\n    - null\n");
}

TEST(ConfigYaml, QuotesWhatWouldBeReadAsSomethingElse) {
  ConfigValue root;
  root.kind = ConfigValue::Kind::kMap;
  for (const char* text : {"no", "NO", "on", "123", "", "a: b", "- a", "#", "\n", "\x7f", "ü",
                           "\xc2\x85", "\xe2\x80\xa8", "\xef\xbb\xbf", "it's \"\\"}) {
    root.items.push_back(text_value(text));
    root.items.back().key = text;
  }
  const ConfigValue again = parse_yaml(write_yaml(root), "again");
  ASSERT_EQ(again.items.size(), root.items.size());
  for (std::size_t i = 0; i < again.items.size(); ++i) {
    EXPECT_EQ(again.items[i].key, root.items[i].key);
    EXPECT_EQ(again.items[i].text, root.items[i].text);
    EXPECT_FALSE(again.items[i].plain);
  }
  EXPECT_EQ(parse_json_config(write_json(root), "j").items.size(), root.items.size());
}

TEST(ConfigYaml, ReadsEveryEscapeOfAText) {
  const ConfigValue root = parse_yaml(R"(["\N", "é\_\N", "\u00e9\L", "\x41\t\e"])", "f");
  EXPECT_EQ(root.items[0].text, "\u0085");
  EXPECT_EQ(root.items[1].text, "é\u00a0\u0085");
  EXPECT_EQ(root.items[2].text, "é\u2028");
  EXPECT_EQ(root.items[3].text, "A\t\x1b");
}

TEST(ConfigYaml, KnowsTheTypesOfYaml) {
  const ConfigValue root = parse_yaml("[yes, 'yes', No, 12, -3, 012, 1.5, ~, null, '']", "f");
  EXPECT_EQ(as_bool(root.items[0]), true);
  EXPECT_EQ(as_bool(root.items[1]), std::nullopt);
  EXPECT_EQ(as_bool(root.items[2]), false);
  EXPECT_EQ(as_integer(root.items[3]), 12);
  EXPECT_EQ(as_integer(root.items[4]), -3);
  EXPECT_EQ(as_integer(root.items[5]), std::nullopt);
  EXPECT_EQ(as_integer(root.items[6]), std::nullopt);
  EXPECT_TRUE(is_null(root.items[7]));
  EXPECT_TRUE(is_null(root.items[8]));
  EXPECT_FALSE(is_null(root.items[9]));
}

TEST(ConfigYaml, RefusesWhatAConfigMayNotHoldAndNamesTheLine) {
  expect_refused("a: 1\nb: [1, 2\n", "line 3", "not valid YAML");
  expect_refused("a: 1\na: 2\n", "line 2", "'a' is given twice");
  expect_refused("a: &x [1]\nb: *x\n", "line 1", "anchors");
  expect_refused("a: 1\nb: *x\n", "line 2", "not valid YAML");
  expect_refused("a: !!python/object:os.system x\n", "line 1", "tag");
  expect_refused("a: 1\n---\nb: 2\n", "line 3", "second document");
  expect_refused("? [a, b]\n: 1\n", "line 1", "key must be a text");
  expect_refused(std::string("a: \0b", 5), "", "not UTF-8");
  expect_refused("a: \xff\n", "", "not UTF-8");
  expect_refused("a: 1\n" + std::string(129, 'k') + ": 1\n", "line 2", "more than 128 bytes");
}

TEST(ConfigYaml, EndsAtABombBeforeItGoesOff) {
  expect_refused(std::string(100'000, '['), "line 1", "");
  expect_refused(std::string(400, '[') + std::string(400, ']'), "line 1", "nested deeper than 32");
  std::string blocks;
  for (int i = 0; i < 400; ++i) blocks += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  expect_refused(blocks, "line 33", "nested deeper than 32");
  std::string dashes;
  for (int i = 0; i < 10'000; ++i) dashes += "- ";
  expect_refused(dashes + "a\n", "line 1", "nested deeper than 32");
  expect_refused("a: [" + std::string(200'000, ',') + "]", "line 1", "");
  expect_refused(std::string(300'000, ' ') + "a: 1", "", "too long");
  std::string laughs = "a: &a [x, x]\n";
  for (char c = 'b'; c <= 'k'; ++c) {
    laughs += std::string(1, c) + ": &" + c + " [*" + static_cast<char>(c - 1) + ", *" +
              static_cast<char>(c - 1) + "]\n";
  }
  expect_refused(laughs, "line 1", "anchors");
}

}  // namespace
}  // namespace haul::core
