#include "core/hub/name.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace haul::core {
namespace {

using testing::HasSubstr;

TEST(HubName, ReadsNamesWithAndWithoutOrganisationAndRevision) {
  EXPECT_EQ(parse_hub_name("gpt2")->repository, "gpt2");
  EXPECT_EQ(parse_hub_name("google-bert/bert-base-cased")->repository,
            "google-bert/bert-base-cased");
  const auto name = parse_hub_name("timm/resnet50.a1_in1k@refs/pr/1");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->repository, "timm/resnet50.a1_in1k");
  EXPECT_EQ(name->revision, "refs/pr/1");
}

TEST(HubName, RefusesWhatTheHubWouldRefuse) {
  for (const char* text : {"",       "a/b/c", "/a",       "a/",   "./a",  "../a", "~/a",   "a b",
                           "-a",     "a-",    ".a",       "a.",   "a--b", "a..b", "a.git", "a@",
                           "a@../b", "a@/b",  "a@b/../c", "a\\b", "a\nb", "a%2fb"}) {
    EXPECT_FALSE(parse_hub_name(text).has_value()) << text;
  }
  EXPECT_FALSE(parse_hub_name(std::string(97, 'a')).has_value());
}

TEST(HubName, FoldersAreNamedAsHuggingfaceHubNamesThem) {
  EXPECT_EQ(cache_folder_name("org/name"), "models--org--name");
  EXPECT_EQ(cache_folder_name("name"), "models--name");
}

TEST(FileName, StaysInItsFolder) {
  for (const char* name :
       {"config.json", "a/b/c.bin", ".gitattributes", "a b", "…", "..a", "a.."}) {
    EXPECT_TRUE(is_safe_file_name(name)) << name;
  }
  for (const std::string& name : {std::string("a\0b", 3), std::string(256, 'a'),
                                  std::string("a/../b"), std::string("\x7f")}) {
    EXPECT_FALSE(is_safe_file_name(name)) << name;
  }
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("listing: names a file 'a\\x1b[2J/../b'"),
                     [] { check_file_name("a\x1b[2J/../b", "listing"); });
}

TEST(Etag, LosesItsQuotesAndMustBeAFileName) {
  EXPECT_EQ(normalised_etag("\"abc\""), "abc");
  EXPECT_EQ(normalised_etag("W/\"abc-1\""), "abc-1");
  EXPECT_EQ(normalised_etag("abc"), "abc");
  for (const char* header : {"", "\"\"", "\"..\"", "\"a/b\"", "\"a b\"", "\"", "\".hidden\""}) {
    EXPECT_FALSE(normalised_etag(header).has_value()) << header;
  }
}

TEST(UrlEncoded, KeepsOnlyWhatIsUnreserved) {
  EXPECT_EQ(url_encoded("refs/pr/1", false), "refs%2Fpr%2F1");
  EXPECT_EQ(url_encoded("a/b c?#%.json", true), "a/b%20c%3F%23%25.json");
}

}  // namespace
}  // namespace haul::core
