#include "tokenizers/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tokenizers/charsmap.h"
#include "tokenizers/graphemes.h"
#include "tokenizers/normalizer.h"
#include "tokenizers/pattern.h"
#include "tokenizers/utf8.h"

namespace haul::tokenizers {
namespace {

TEST(ToUtf8, ReplacesEachMaximalIllFormedPart) {
  EXPECT_EQ(to_utf8("a\xFFz"), "a\uFFFDz");
  EXPECT_EQ(to_utf8("\xE2\x96"), "\uFFFD");
  EXPECT_EQ(to_utf8("\xE2\x96z"), "\uFFFDz");
  EXPECT_EQ(to_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(to_utf8("\xF0\x90\x80\xF4\x90"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(to_utf8("\xC0\x80"), "\uFFFD\uFFFD");
  EXPECT_EQ(to_utf8("plain é 中 😀"), "plain é 中 😀");
}

TEST(IsUtf8, AgreesWithRepair) {
  for (const char* text :
       {"", "abc", "é", "😀", "\xFF", "abcdefgh\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80"}) {
    EXPECT_EQ(is_utf8(text), to_utf8(text) == text) << text;
  }
}

std::string normalized(NormalForm form, std::string_view text) {
  Text value;
  value.assign(text, 0, false);
  make_normal_form(form)->normalize(value);
  return value.bytes();
}

TEST(NormalForms, ComposeDecomposeAndReorder) {
  EXPECT_EQ(normalized(NormalForm::kNfc, "e\u0301"), "é");
  EXPECT_EQ(normalized(NormalForm::kNfd, "é"), "e\u0301");
  EXPECT_EQ(normalized(NormalForm::kNfd, "q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(normalized(NormalForm::kNfc, "\u1112\u1161\u11ab"), "한");
  EXPECT_EQ(normalized(NormalForm::kNfd, "한"), "\u1112\u1161\u11ab");
  EXPECT_EQ(normalized(NormalForm::kNfkc, "ﬁ①"), "fi1");
  EXPECT_EQ(normalized(NormalForm::kNfc, "\u0958"), "\u0915\u093c");  // does not compose again
}

TEST(Text, KeepsWhatEachByteStandsFor) {
  Text text;
  text.assign("é", 10, true);
  make_normal_form(NormalForm::kNfd)->normalize(text);
  ASSERT_EQ(text.bytes(), "e\u0301");
  for (const Span& span : text.spans()) {
    EXPECT_EQ(span.begin, 10u);
    EXPECT_EQ(span.end, 12u);
  }
}

TEST(GraphemeSize, JoinsWhatBelongsTogether) {
  EXPECT_EQ(grapheme_size("e\u0301x"), 3u);
  EXPECT_EQ(grapheme_size("\r\nx"), 2u);
  EXPECT_EQ(grapheme_size("🇫🇷🇩🇪"), 8u);
  EXPECT_EQ(grapheme_size("👩\u200d👧x"), 11u);
  EXPECT_EQ(grapheme_size("ab"), 1u);
}

TEST(Charsmap, RefusesBytesThatAreNoMap) {
  test::expect_error(ErrorKind::kCorrupt, testing::HasSubstr("shorter than its header"),
                     [] { (void)Charsmap("ab"); });
  test::expect_error(ErrorKind::kCorrupt, testing::HasSubstr("declares"),
                     [] { (void)Charsmap(std::string("\xFF\xFF\xFF\x7F", 4)); });
}

TEST(MakeRegex, RefusesAPatternThatDoesNotCompile) {
  test::expect_error(ErrorKind::kCorrupt, testing::HasSubstr("does not compile"),
                     [] { (void)make_regex("(a"); });
}

TEST(MakeRegex, KnowsCharactersOfThePeersUnicodeVersion) {
  // U+31350 came with Unicode 15, U+10D40 (a digit) with 16.
  for (const auto& [pattern, text] :
       {std::pair(R"(\p{Lo})", "\U00031350"), std::pair(R"(\p{Han})", "\U00031350"),
        std::pair(R"(\d)", "\U00010D40"), std::pair(R"([^\P{N}x])", "\U00010D40")}) {
    std::vector<Match> matches;
    make_regex(pattern)->find(text, matches);
    ASSERT_EQ(matches.size(), 1u);
    EXPECT_TRUE(matches[0].is_match) << pattern;
  }
}

}  // namespace
}  // namespace haul::tokenizers
