#include "tokenizers/scanners.h"

#include <random>

#include <gtest/gtest.h>

#include "tokenizers/pattern.h"
#include "tokenizers/pre_tokenizer.h"

namespace haul::tokenizers {
namespace {

std::vector<std::string> scanned(Scanner scanner, std::string_view text) {
  std::vector<std::string> pieces;
  scan(scanner, text, [&](const char* begin, const char* end) { pieces.emplace_back(begin, end); });
  return pieces;
}

// The same by the general engine.
class Matched {
 public:
  explicit Matched(Scanner scanner) {
    if (scanner == Scanner::kGpt2Digits) stages_.push_back(make_digits(true));
    const bool drops = scanner == Scanner::kClip;
    stages_.push_back(make_split(make_regex(pattern_of(scanner)),
                                 drops ? SplitBehavior::kRemoved : SplitBehavior::kIsolated, drops,
                                 ""));
  }

  std::vector<std::string> operator()(std::string_view text) const {
    Pieces pieces;
    pieces.text.assign(text, 0, false);
    if (!text.empty()) pieces.list.push_back({0, text.size(), kNoToken, true});
    for (const auto& stage : stages_) stage->split(pieces);
    std::vector<std::string> result;
    for (const Piece& piece : pieces.list) result.emplace_back(pieces.bytes(piece));
    return result;
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> stages_;
};

std::string random_text(std::mt19937& random) {
  static const std::vector<std::string> parts = {
      " ",   "  ",  "\t",   "\n",      "\r\n",   "\u00a0", "\u2003", "'",      "'s",   "'S",
      "'ll", "'LL", "'re",  "'\u017f", "a",      "B",      "word",   "Word",   "HTTP", "é",
      "ß",   "ǅ",   "ʰ",    "中",      "ก",      "ำ",      "\u0301", "\u0903", "1",    "234",
      "٣",   "Ⅳ",   "½",    "!",       "/",      "//",     "...",    "€",      "😀",    "\u200d",
      "_",   "-",   "\x01", "\u0085",  "\u180e", "ª"};
  std::string text;
  const std::size_t count = random() % 12;
  for (std::size_t i = 0; i < count; ++i) text += parts[random() % parts.size()];
  return text;
}

class EveryScanner : public testing::TestWithParam<Scanner> {};

TEST_P(EveryScanner, SplitsAsItsPatternDoes) {
  const Matched matched(GetParam());
  std::mt19937 random(1);
  for (int i = 0; i < 4000; ++i) {
    const std::string text = random_text(random);
    ASSERT_EQ(scanned(GetParam(), text), matched(text)) << text;
  }
}

TEST_P(EveryScanner, KnowsEveryCodePointAsItsPatternDoes) {
  const Matched matched(GetParam());
  for (char32_t point = 1; point < 0x110000; point += 17) {
    if (point >= 0xD800 && point < 0xE000) continue;
    std::string text = "a";
    append_utf8(text, point);
    text += "A ";
    append_utf8(text, point);
    append_utf8(text, point);
    text += " 1";
    ASSERT_EQ(scanned(GetParam(), text), matched(text)) << std::hex << +point;
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryScanner,
                         testing::Values(Scanner::kGpt2, Scanner::kGpt2Digits, Scanner::kCl100k,
                                         Scanner::kQwen2, Scanner::kO200k, Scanner::kClip));

TEST(FindScanner, KnowsOnlyExactPatterns) {
  EXPECT_EQ(find_scanner(kGpt2Pattern), Scanner::kGpt2);
  EXPECT_EQ(find_scanner(pattern_of(Scanner::kO200k)), Scanner::kO200k);
  EXPECT_FALSE(find_scanner(R"(\p{L}+)"));
}

}  // namespace
}  // namespace haul::tokenizers
