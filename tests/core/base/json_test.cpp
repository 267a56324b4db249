#include "core/base/json.h"

#include <gtest/gtest.h>

#include "core/base/big_json.h"
#include "tests/support/expect_error.h"

namespace haul::core {
namespace {

using testing::HasSubstr;

TEST(ParseJson, KeepsTheOrderOfKeys) {
  EXPECT_EQ(parse_json(R"({"b": 1, "a": 2})", "x").dump(), R"({"b":1,"a":2})");
}

TEST(ParseJson, NamesTheSourceOfBrokenText) {
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("config.json: not valid JSON at byte"),
                     [] { parse_json("{\"a\": ", "config.json"); });
}

TEST(ParseJson, RefusesAKeyGivenTwiceAndDeepNesting) {
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("'a' is given twice"),
                     [] { parse_json(R"({"a": 1, "a": 2})", "x"); });
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("nested deeper"),
                     [] { parse_json(std::string(100'000, '['), "x"); });
}

TEST(BigJson, RefusesAKeyGivenTwiceInSmallAndLargeObjects) {
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("'a' is given twice"),
                     [] { BigJson(R"({"x": {"a": 1, "a": 2}})", "x"); });
  std::string large = "{\"k7\": 0";
  for (int i = 0; i < 100; ++i) large += ", \"k" + std::to_string(i) + "\": 0";
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("'k7' is given twice"),
                     [&] { BigJson(large + "}", "x"); });
}

TEST(BigJson, RefusesDeepNestingAndBrokenText) {
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("x: "),
                     [] { BigJson(std::string(100'000, '['), "x"); });
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("x: "), [] { BigJson("{", "x"); });
}

}  // namespace
}  // namespace haul::core
