#include "core/base/utf8.h"

#include <gtest/gtest.h>

namespace haul::core {
namespace {

TEST(Utf8, AcceptsEveryLengthAndTheEdges) {
  for (const char* text :
       {"", "plain", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
        "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "a\xe2\x82\xac z"}) {
    EXPECT_TRUE(is_utf8(text)) << text;
  }
}

TEST(Utf8, RefusesOverlongFormsSurrogatesAndStrayBytes) {
  for (const char* text :
       {"\x80", "\xc0\xaf", "\xc1\xbf", "\xc2", "\xc2z", "\xe0\x9f\xbf", "\xe2\x82", "\xed\xa0\x80",
        "\xf0\x8f\xbf\xbf", "\xf0\x90\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    EXPECT_FALSE(is_utf8(text)) << text;
  }
}

}  // namespace
}  // namespace haul::core
