#include "runtime/generate/stop_strings.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

namespace haul::runtime {
namespace {

TEST(StopStrings, CutBeforeAStringThatComesInOnePiece) {
  StopStrings stop({"END"});
  EXPECT_EQ(stop.push("one END two"), "one ");
  EXPECT_TRUE(stop.found());
  EXPECT_EQ(stop.push("three"), "");
  EXPECT_EQ(stop.finish(), "");
}

TEST(StopStrings, CutBeforeAStringThatComesInPieces) {
  StopStrings stop({"</s>"});
  EXPECT_EQ(stop.push("yes<"), "yes");
  EXPECT_EQ(stop.push("/"), "");
  EXPECT_EQ(stop.push("s"), "");
  EXPECT_FALSE(stop.found());
  EXPECT_EQ(stop.push("> and more"), "");
  EXPECT_TRUE(stop.found());
  EXPECT_EQ(stop.finish(), "");
}

TEST(StopStrings, WhatTurnsOutToBeNoneIsReleased) {
  StopStrings stop({"</s>"});
  EXPECT_EQ(stop.push("a</"), "a");
  EXPECT_EQ(stop.push("b>"), "</b>");
  EXPECT_EQ(stop.push("</s"), "");
  EXPECT_EQ(stop.finish(), "</s");
  EXPECT_FALSE(stop.found());
}

TEST(StopStrings, ABeginningWithinABeginningIsKept) {
  StopStrings stop({"aab"});
  EXPECT_EQ(stop.push("aa"), "");
  EXPECT_EQ(stop.push("a"), "a");
  EXPECT_EQ(stop.push("b"), "");
  EXPECT_TRUE(stop.found());
}

TEST(StopStrings, OfSeveralTheFirstToBeCompleteCuts) {
  for (const bool whole : {true, false}) {
    StopStrings stop({"bcde", "cd", "xyz"});
    const std::string text = "abcdef";
    std::string shown;
    if (whole) {
      shown = stop.push(text);
    } else {
      for (const char letter : text) shown += stop.push({&letter, 1});
    }
    EXPECT_EQ(shown, "ab");
    EXPECT_TRUE(stop.found());
  }
}

TEST(StopStrings, OfTwoThatEndTogetherTheLongerCuts) {
  StopStrings stop({"d", "bcd", "cd"});
  EXPECT_EQ(stop.push("abcd"), "a");
}

TEST(StopStrings, ManyThatBeginAlikeHoldBackTheLongestBeginning) {
  StopStrings stop({"ab", "xxab!"});
  EXPECT_EQ(stop.push("-xx"), "-");
  EXPECT_EQ(stop.push("a"), "");
  EXPECT_EQ(stop.push("c"), "xxac");
}

TEST(StopStrings, NoneAndEmptyOnesHoldNothingBack) {
  StopStrings none({});
  EXPECT_EQ(none.push("text"), "text");
  EXPECT_EQ(none.finish(), "");
  StopStrings empty({"", ""});
  EXPECT_EQ(empty.push(""), "");
  EXPECT_EQ(empty.push("text"), "text");
  EXPECT_FALSE(empty.found());
  StopStrings both({"", "x"});
  EXPECT_EQ(both.push("text"), "te");
  EXPECT_TRUE(both.found());
}

// Looks at every beginning of the text, the shortest first, for a string that it ends with.
std::size_t slow_first(const std::string& text, const std::vector<std::string>& strings) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& string : strings) {
      if (text.substr(0, end).ends_with(string)) longest = std::max(longest, string.size());
    }
    if (longest > 0) return end - longest;
  }
  return std::string::npos;
}

TEST(StopStrings, HoweverATextIsCutItEndsBeforeTheFirst) {
  std::mt19937 random(3);
  const auto letters = [&](std::size_t most) {
    std::string text(random() % (most + 1), ' ');
    for (char& letter : text) letter = "abc"[random() % 3];
    return text;
  };
  int ended = 0;
  constexpr int kTexts = 20'000;
  for (int i = 0; i < kTexts; ++i) {
    const std::string text = letters(30);
    std::vector<std::string> strings;
    for (std::size_t count = random() % 4; strings.size() < count;) strings.push_back(letters(6));
    const std::size_t first = slow_first(text, strings);
    StopStrings stop(strings);
    std::string shown;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = 1 + random() % 6;
      shown += stop.push(std::string_view(text).substr(at, size));
      ASSERT_TRUE(text.starts_with(shown));
      at += size;
    }
    shown += stop.finish();
    ASSERT_EQ(shown, text.substr(0, first)) << text << ", case " << i;
    ASSERT_EQ(stop.found(), first != std::string::npos);
    ended += stop.found() ? 1 : 0;
  }
  EXPECT_GT(ended, kTexts / 5);
  EXPECT_LT(ended, kTexts * 9 / 10);
}

}  // namespace
}  // namespace haul::runtime
