#include <string>

#include <gtest/gtest.h>

#include "haul/error.h"
#include "tests/support/expect_error.h"
#include "tests/tokenizers/render.h"

namespace haul::test {
namespace {

using testing::HasSubstr;

TEST(TemplateExpressions, PrintValuesAsPythonDoes) {
  EXPECT_EQ(print("[1, 1.0, 1e16, 0.00001, none, true, 'it\\'s', {'a': (1,)}]"),
            "[1, 1.0, 1e+16, 1e-05, None, True, \"it's\", {'a': (1,)}]");
  EXPECT_EQ(print("7 / 2"), "3.5");
  EXPECT_EQ(print("none"), "None");
  EXPECT_EQ(print("missing"), "");
}

TEST(TemplateExpressions, FloorAndModuloGoDown) {
  EXPECT_EQ(print("-7 // 2"), "-4");
  EXPECT_EQ(print("-7 % 3"), "2");
  EXPECT_EQ(print("7 % -3"), "-2");
  EXPECT_EQ(print("-7.5 % 2"), "0.5");
}

TEST(TemplateExpressions, TildeBindsTighterThanPlus) {
  EXPECT_EQ(print("'a' + 1 ~ 2"), "a12");
}

TEST(TemplateExpressions, ComparisonsChain) {
  EXPECT_EQ(print("1 < 2 < 3"), "True");
  EXPECT_EQ(print("1 < 3 < 2"), "False");
  EXPECT_EQ(print("1 == 1.0 == true"), "True");
}

TEST(TemplateExpressions, CompareIntegersAndFloatsExactly) {
  EXPECT_EQ(print("9007199254740993 == 9007199254740992.0"), "False");
  EXPECT_EQ(print("9007199254740993 > 9007199254740992.0"), "True");
}

TEST(TemplateExpressions, SlicesCountCharacters) {
  const std::string context = R"({"s": "aé今👍z"})";
  EXPECT_EQ(print("s[1:4]", context), "é今👍");
  EXPECT_EQ(print("s[::-1]", context), "z👍今éa");
  EXPECT_EQ(print("s[-2]", context), "👍");
  EXPECT_EQ(print("s | length", context), "5");
  EXPECT_EQ(print("[1, 2, 3, 4][-1:0:-2]"), "[4, 2]");
}

TEST(TemplateExpressions, MethodsComeBeforeKeysAfterADotAndKeysFirstInBrackets) {
  const std::string context = R"({"d": {"items": 5}})";
  EXPECT_EQ(print("d['items']", context), "5");
  EXPECT_EQ(print("d.items() | list", context), "[('items', 5)]");
}

TEST(TemplateExpressions, AnAttributeOfAnUndefinedValueIsAnError) {
  EXPECT_EQ(print("d.nope", R"({"d": {}})"), "");
  expect_error(ErrorKind::kCorrupt, HasSubstr("t: line 1: 'dict object' has no attribute 'nope'"),
               [] { print("d.nope.more", R"({"d": {}})"); });
  expect_error(ErrorKind::kCorrupt, HasSubstr("'x' is undefined"), [] { print("x.y"); });
}

TEST(TemplateExpressions, IteratorsAreTrueAndWalkedOnce) {
  EXPECT_EQ(render("{% set g = [1, 2] | select('gt', 5) %}{{ 'yes' if g else 'no' }}"), "yes");
  EXPECT_EQ(render("{% set g = [1, 2] | map('string') %}{{ g | list }}{{ g | list }}"),
            "['1', '2'][]");
  expect_error(ErrorKind::kCorrupt, HasSubstr("has no len()"),
               [] { print("[1] | map('string') | length"); });
}

TEST(TemplateExpressions, ToJsonWritesAsPythonsJsonDoes) {
  const std::string context = R"({"d": {"b": [1, 2.0, null], "a": "é\n\"/\u0001"}})";
  EXPECT_EQ(print("d | tojson", context), R"({"b": [1, 2.0, null], "a": "é\n\"/\u0001"})");
  EXPECT_EQ(print("d | tojson(sort_keys=true, separators=(',', ':'))", context),
            R"({"a":"é\n\"/\u0001","b":[1,2.0,null]})");
  EXPECT_EQ(print("[1, {}] | tojson(indent=2)"), "[\n  1,\n  {}\n]");
  EXPECT_EQ(print("'é👍' | tojson(ensure_ascii=true)"), R"("\u00e9\ud83d\udc4d")");
}

TEST(TemplateExpressions, TextAddedToSafeTextIsEscaped) {
  EXPECT_EQ(print("('<' | safe) + '>'"), "<&gt;");
  EXPECT_EQ(print("('<' | safe) ~ '>'"), "<>");
}

TEST(TemplateExpressions, CaseFollowsUnicode) {
  EXPECT_EQ(print("'straße ŉ'.upper()"), "STRASSE ʼN");
  EXPECT_EQ(print("'ΑΣ ΑΣΑ'.lower()"), "ας ασα");
  EXPECT_EQ(print("'ßa bC'.title()"), "Ssa Bc");
}

TEST(TemplateExpressions, FormatsFollowPython) {
  EXPECT_EQ(print("'{:>4}|{:<3}|{:^5}|{:05.1f}|{:,}'.format('a', 1, 'x', 2.25, 1234567)"),
            "   a|1  |  x  |002.2|1,234,567");
  EXPECT_EQ(print("'%s is %03d%%' % ('it', 7)"), "it is 007%");
}

}  // namespace
}  // namespace haul::test
