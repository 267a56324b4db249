#include "core/describe/config_reader.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace haul::core {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Json parsed(const char* text) {
  return parse_json(text, "config.json");
}

void expect_refused(const char* text) {
  const Json json = parsed(text);
  const ConfigReader config(json, "config.json");
  test::expect_error(ErrorKind::kCorrupt,
                     AllOf(HasSubstr("config.json"), HasSubstr("\"hidden_size\""),
                           HasSubstr("expected a whole number from 1 to 2147483648")),
                     [&] { config.size({"hidden_size"}, 768); });
}

TEST(ConfigReader, RefusesASizeThatIsNoneAndNamesItsKey) {
  expect_refused(R"({"hidden_size": 0})");
  expect_refused(R"({"hidden_size": -768})");
  expect_refused(R"({"hidden_size": 768.0})");
  expect_refused(R"({"hidden_size": "768"})");
  expect_refused(R"({"hidden_size": true})");
  expect_refused(R"({"hidden_size": null})");
  expect_refused(R"({"hidden_size": [768]})");
  expect_refused(R"({"hidden_size": 2147483649})");
  expect_refused(R"({"hidden_size": 18446744073709551615})");
  expect_refused(R"({"hidden_size": 1e300})");
}

TEST(ConfigReader, TakesTheFirstNameThatIsThere) {
  const Json both = parsed(R"({"n_embd": 12, "hidden_size": 16})");
  const Json one = parsed(R"({"n_embd": 12})");
  const Json none = parsed("{}");
  EXPECT_EQ(ConfigReader(both, "x").size({"hidden_size", "n_embd"}, 768), 16);
  EXPECT_EQ(ConfigReader(one, "x").size({"hidden_size", "n_embd"}, 768), 12);
  EXPECT_EQ(ConfigReader(none, "x").size({"hidden_size", "n_embd"}, 768), 768);
}

TEST(ConfigReader, BoundsTheNumberOfLayers) {
  const Json json = parsed(R"({"n_layer": 2001})");
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("\"n_layer\" is 2001"),
                     [&] { ConfigReader(json, "x").layers({"n_layer"}, 12); });
}

TEST(ConfigReader, CountsLabelsByTheirNamesThenByTheirNumber) {
  const Json names = parsed(R"({"id2label": {"0": "a", "1": "b", "2": "c"}, "num_labels": 7})");
  const Json number = parsed(R"({"num_labels": 7})");
  const Json neither = parsed(R"({"id2label": null})");
  EXPECT_EQ(ConfigReader(names, "x").labels(), 3);
  EXPECT_EQ(ConfigReader(number, "x").labels(), 7);
  EXPECT_EQ(ConfigReader(neither, "x").labels(), 2);
}

TEST(ConfigReader, ReadsAMissingOrNullSectionAsEmpty) {
  const Json json = parsed(R"({"vision_config": null, "text_config": 3})");
  const ConfigReader config(json, "x");
  EXPECT_EQ(config.section("vision_config").size({"hidden_size"}, 5), 5);
  EXPECT_EQ(config.section("other").size({"hidden_size"}, 5), 5);
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("\"text_config\" is not an object"),
                     [&] { config.section("text_config"); });
}

TEST(ConfigReader, RefusesADocumentThatIsNoObject) {
  const Json json = parsed("[1]");
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("x: not a JSON object"),
                     [&] { ConfigReader(json, "x"); });
}

}  // namespace
}  // namespace haul::core
