#include "core/hub/url.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace haul::core {
namespace {

using testing::HasSubstr;

TEST(Url, ReadsHostPortAndTarget) {
  const Url url = parse_url("HTTPS://Hub.Example:8443/a/b?c=d#e");
  EXPECT_EQ(url.scheme, "https");
  EXPECT_EQ(url.host, "hub.example");
  EXPECT_EQ(url.port, 8443);
  EXPECT_EQ(url.target, "/a/b?c=d");
  EXPECT_EQ(url.text(), "https://hub.example:8443/a/b?c=d");
  EXPECT_EQ(parse_url("http://h").text(), "http://h/");
  EXPECT_EQ(parse_url("http://[::1]:80/x").origin(), "http://[::1]");
  EXPECT_EQ(parse_url("http://h?a").target, "/?a");
}

TEST(Url, RefusesWhatOthersCouldReadDifferently) {
  for (const char* text :
       {"", "h", "ftp://h/", "file:///etc/passwd", "http://", "http:///x", "http://a@b/",
        "http://h:0/", "http://h:65536/", "http://h:8x/", "http://h:/", "http://h\\@b/",
        "http://h /", "http://h/\r\nX: y", "http://h/\x7f", "http://hé/", "http://[::1/"}) {
    test::expect_error(ErrorKind::kCorrupt, HasSubstr("the address"), [&] { parse_url(text); });
  }
}

TEST(Redirect, ResolvesEveryFormOfLocation) {
  const Url from = parse_url("https://h/a/b?q=1");
  EXPECT_EQ(redirect_target(from, "/c").text(), "https://h/c");
  EXPECT_EQ(redirect_target(from, "c?x=http://y").text(), "https://h/a/c?x=http://y");
  EXPECT_EQ(redirect_target(from, "//other/c").text(), "https://other/c");
  EXPECT_EQ(redirect_target(from, "https://cdn:444/c?sig=1").text(), "https://cdn:444/c?sig=1");
  EXPECT_EQ(redirect_target(parse_url("http://h/"), "https://h/c").text(), "https://h/c");
}

TEST(Redirect, NeverLeavesHttpsNorHttp) {
  const Url from = parse_url("https://h/a");
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("from https to http"),
                     [&] { redirect_target(from, "http://h/a"); });
  for (const char* location : {"", "file:/etc/passwd", "javascript:x", "ftp://h/", "https:x"}) {
    test::expect_error(ErrorKind::kCorrupt, HasSubstr("the address"),
                       [&] { redirect_target(from, location); });
  }
}

TEST(Url, AnOriginIsSchemeHostAndPort) {
  const Url url = parse_url("https://h/a");
  EXPECT_TRUE(url.same_origin(parse_url("https://H:443/b")));
  for (const char* other : {"http://h/a", "https://h:444/a", "https://h.evil/a", "https://x/a"}) {
    EXPECT_FALSE(url.same_origin(parse_url(other))) << other;
  }
}

}  // namespace
}  // namespace haul::core
