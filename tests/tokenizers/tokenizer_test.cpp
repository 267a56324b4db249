#include "haul/tokenizer.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/count_allocations.h"
#include "tests/support/expect_error.h"
#include "tests/support/small_tokenizers.h"
#include "tests/support/temporary_folder.h"
#include "tokenizers/state.h"
#include "tokenizers/tokenizer_json.h"

namespace haul {
namespace {

using test::small_tokenizers;

std::string random_text(std::mt19937& random) {
  static const std::vector<std::string> parts = {
      " ",   "  ", "\t", "\n",     "the",  " the",  "The", "aaaa",  "a",    "é",      "e\u0301",
      "'s",  "12", "3",  "½",      "中",   "<end>", ".",   ",",     "!",    "\u00a0", "▁",
      "ing", "in", "😀",  "\u0301", "word", "한",    "ﬁ",   "[UNK]", "\x01", "ก",      "ำ"};
  std::string text;
  const std::size_t count = random() % 14;
  for (std::size_t i = 0; i < count; ++i) text += parts[random() % parts.size()];
  return text;
}

TEST(Tokenizer, HasAFastRouteForEveryShapeThatRealModelsHave) {
  for (const std::string& json : small_tokenizers()) {
    const Tokenizer::State state(tokenizers::read_tokenizer_json(json, "test"));
    EXPECT_TRUE(state.fast.has_value()) << json.substr(0, 400);
  }
}

TEST(Tokenizer, GivesTheSameIdsByBothRoutes) {
  std::mt19937 random(2);
  for (const std::string& json : small_tokenizers()) {
    const Tokenizer tokenizer = Tokenizer::from_json(json, "test");
    for (int i = 0; i < 2000; ++i) {
      const std::string text = random_text(random);
      ASSERT_EQ(tokenizer.encode_ids(text), tokenizer.encode(text).ids) << text << '\n' << json;
    }
  }
}

// Stages that turn line ends into spaces, and pre-tokenizers that differ in what they make of many.
TEST(Tokenizer, GivesTheSameIdsByBothRoutesWhereLinesEndInSpaces) {
  const std::string metaspace =
      R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "SCHEME", "split": true})";
  const auto replace = [](std::string text, std::string_view part, std::string_view with) {
    if (const std::size_t at = text.find(part); at != std::string::npos) {
      text.replace(at, part.size(), with);
    }
    return text;
  };
  std::mt19937 random(7);
  std::vector<std::string> texts;
  texts.reserve(1500);
  for (int i = 0; i < 1500; ++i) {
    texts.push_back(random_text(random) + "\n \t" + random_text(random) +
                    "\n\n``the \r\n the''  a");
  }
  for (
      const char* normalizers :
      {R"({"type": "Nmt"})", R"({"type": "Nmt"}, {"type": "NFKC"}, JOIN)",
       R"({"type": "Nmt"}, {"type": "Strip", "strip_left": false, "strip_right": true}, JOIN)",
       R"({"type": "Nmt"}, {"type": "Replace", "pattern": {"String": "``"}, "content": "'"}, JOIN)",
       R"({"type": "Nmt"}, {"type": "Replace", "pattern": {"String": " "}, "content": "_"}, JOIN)",
       R"(JOIN, {"type": "Nmt"})", R"({"type": "Lowercase"}, JOIN)"}) {
    for (const char* content : {"▁", " ", "_", "x y"}) {
      const std::string join =
          R"({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "CONTENT"})";
      for (const char* scheme : {"always", "first", "never"}) {
        const std::string marks = replace(metaspace, "SCHEME", scheme);
        for (const std::string& split :
             {marks, std::string(R"({"type": "WhitespaceSplit"})"),
              R"({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, )" + marks +
                  "]}"}) {
          std::string json = R"({"version": "1.0", "added_tokens": [], "normalizer":
              {"type": "Sequence", "normalizers": [NORMALIZERS]}, "pre_tokenizer": SPLIT,
              "post_processor": null, "decoder": null, "model": {"type": "Unigram", "unk_id": 0,
              "vocab": [["<unk>", 0.0], ["▁", -2.0], ["▁the", -3.0], ["a", -3.5], ["▁a", -4.2],
              ["the", -3.2], ["_", -4.0], ["'", -4.0], ["`", -4.0], ["x", -4.0], ["▁▁", -3.0]]}})";
          json = replace(json, "NORMALIZERS", normalizers);
          json = replace(replace(json, "JOIN", join), "CONTENT", content);
          json = replace(json, "SPLIT", split);
          const Tokenizer tokenizer = Tokenizer::from_json(json, "test");
          for (std::size_t i = random() % 16; i < texts.size(); i += 16) {
            ASSERT_EQ(tokenizer.encode_ids(texts[i]), tokenizer.encode(texts[i]).ids)
                << texts[i] << '\n'
                << json;
          }
        }
      }
    }
  }
}

TEST(Tokenizer, EncodesABatchInOrderOnAnyNumberOfThreads) {
  std::mt19937 random(3);
  const Tokenizer tokenizer = Tokenizer::from_json(small_tokenizers()[2], "test");
  std::vector<std::string> texts;
  texts.reserve(3000);
  for (int i = 0; i < 3000; ++i) texts.push_back(random_text(random) + std::string(300, 'a'));
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  for (const unsigned threads : {1u, 3u, 0u}) {
    const EncodedBatch batch = tokenizer.encode_batch(views, {}, threads);
    ASSERT_EQ(batch.ends.size(), texts.size());
    std::size_t begin = 0;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const std::vector<TokenId> ids(
          batch.ids.begin() + static_cast<std::ptrdiff_t>(begin),
          batch.ids.begin() + static_cast<std::ptrdiff_t>(batch.ends[i]));
      ASSERT_EQ(ids, tokenizer.encode_ids(texts[i])) << texts[i];
      begin = batch.ends[i];
    }
  }
}

// More ids than a thread keeps in one piece, and texts of every size beside each other.
TEST(Tokenizer, EncodesABatchOfLongAndEmptyTexts) {
  std::mt19937 random(8);
  const Tokenizer tokenizer = Tokenizer::from_json(small_tokenizers()[1], "test");
  std::vector<std::string> texts;
  for (const std::size_t size : {0u, 3'000'000u, 0u, 1u, 900'000u, 70'000u, 2'000'000u, 0u}) {
    std::string text;
    while (text.size() < size) text += random_text(random) + std::to_string(random());
    texts.push_back(std::move(text));
  }
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  std::vector<TokenId> ids;
  std::vector<std::size_t> ends;
  for (const std::string& text : texts) {
    const std::vector<TokenId> one = tokenizer.encode_ids(text);
    ids.insert(ids.end(), one.begin(), one.end());
    ends.push_back(ids.size());
  }
  ASSERT_GT(ids.size(), std::size_t{2} << 20);
  for (const unsigned threads : {1u, 2u, 5u, 64u}) {
    const EncodedBatch batch = tokenizer.encode_batch(views, {}, threads);
    EXPECT_TRUE(batch.ids == ids) << threads;
    EXPECT_EQ(batch.ends, ends) << threads;
  }
  EXPECT_TRUE(tokenizer.encode_batch({}).ends.empty());
}

TEST(Tokenizer, FailsAsABatchWhenOneTextCannotBeExpressed) {
  const Tokenizer tokenizer = Tokenizer::from_json(
      R"({"model": {"type": "WordLevel", "unk_token": "none", "vocab": {"a": 0, "b": 1}},
          "pre_tokenizer": {"type": "WhitespaceSplit"}})",
      "test");
  std::vector<std::string> texts(40, std::string(20'000, ' ') + "a b");
  texts[33] += " c";
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  for (const unsigned threads : {1u, 4u}) {
    test::expect_error(ErrorKind::kUnsupported, testing::_,
                       [&] { (void)tokenizer.encode_batch(views, {}, threads); });
  }
}

TEST(Tokenizer, AllocatesNothingForATokenOrAKnownWord) {
  std::mt19937 random(4);
  for (const std::string& json : small_tokenizers()) {
    const Tokenizer::State state(tokenizers::read_tokenizer_json(json, "test"));
    const auto count_for = [&](std::size_t repeats) {
      std::string text;
      for (std::size_t i = 0; i < repeats; ++i)
        text += "the 12 words aaaa, it's in the end! 中 é. ";
      tokenizers::FastScratch scratch;
      std::vector<TokenId> ids;
      ids.reserve(text.size() * 2);
      state.append_ids(text, {}, scratch, ids);  // meets every word
      ids.clear();
      const std::size_t before = test::allocation_count();
      state.append_ids(text, {}, scratch, ids);
      EXPECT_GT(ids.size(), repeats * 4);
      return test::allocation_count() - before;
    };
    EXPECT_LE(count_for(5000), count_for(10) + 2) << json.substr(0, 300);
  }
}

TEST(Tokenizer, StaysLinearOnOneLetterAMillionTimes) {
  const std::string letters(std::size_t{1} << 20, 'a');
  const std::string spaces(std::size_t{1} << 20, ' ');
  for (const std::string& json : small_tokenizers()) {
    const Tokenizer tokenizer = Tokenizer::from_json(json, "test");
    // Quadratic work would take hours; the test's time limit is the judge.
    EXPECT_EQ(tokenizer.encode_ids(letters), tokenizer.encode(letters).ids);
    EXPECT_EQ(tokenizer.encode_ids(spaces + "b"), tokenizer.encode(spaces + "b").ids);
  }
}

TEST(Tokenizer, StreamsWholeCharactersAndTheTextOfAllIds) {
  std::mt19937 random(5);
  for (const std::string& json : small_tokenizers()) {
    const Tokenizer tokenizer = Tokenizer::from_json(json, "test");
    for (int i = 0; i < 300; ++i) {
      const std::vector<TokenId> ids = tokenizer.encode_ids(random_text(random) + "é中😀");
      StreamDecoder stream = tokenizer.stream();
      std::string text;
      for (const TokenId id : ids) {
        const std::string part = stream.push(id);
        EXPECT_TRUE(tokenizers::is_utf8(part));
        text += part;
      }
      text += stream.finish();
      ASSERT_EQ(text, tokenizer.decode(ids)) << json;
    }
  }
}

TEST(Tokenizer, EmitsAsSoonAsACharacterIsWhole) {
  const Tokenizer tokenizer = Tokenizer::from_json(small_tokenizers()[1], "test");
  const std::vector<TokenId> ids = tokenizer.encode_ids("中");
  ASSERT_EQ(ids.size(), 3u);
  StreamDecoder stream = tokenizer.stream();
  EXPECT_EQ(stream.push(ids[0]), "");
  EXPECT_EQ(stream.push(ids[1]), "");
  EXPECT_EQ(stream.push(ids[2]), "中");
  EXPECT_EQ(stream.push(ids[0]), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
}

TEST(Tokenizer, FindsSpecialTokensAndLeavesThemOut) {
  const Tokenizer tokenizer = Tokenizer::from_json(small_tokenizers()[1], "test");
  const std::vector<TokenId> ids = tokenizer.encode_ids("a<end> b");
  ASSERT_EQ(ids.size(), 3u);  // the token takes the space behind it
  EXPECT_TRUE(tokenizer.is_special(ids[1]));
  EXPECT_EQ(tokenizer.decode(ids, true), "ab");
  EXPECT_EQ(tokenizer.decode(ids, false), "a<end>b");
  EXPECT_EQ(tokenizer.token_to_id("<end>"), ids[1]);
  EXPECT_EQ(tokenizer.id_to_token(ids[1]), "<end>");
}

TEST(Tokenizer, NamesThePlaceOfWhatIsWrong) {
  const auto refused = [](std::string json, const char* message) {
    test::expect_error(ErrorKind::kCorrupt, testing::HasSubstr(message),
                       [&] { (void)Tokenizer::from_json(json, "t.json"); });
  };
  refused("{", "t.json");
  refused("{}", "'model' is missing");
  refused(R"({"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}})",
          "t.json.model.vocab.a");
  refused(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}})", "'b'");
  refused(R"({"model": {"type": "Unigram", "unk_id": 5, "vocab": [["a", 0.0]]}})", "unk_id");
  refused(R"({"model": {"type": "WordLevel", "unk_token": "a", "vocab": {"a": 0}},
             "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated",
             "invert": false}})",
          "does not compile");
  test::expect_error(ErrorKind::kUnsupported, testing::HasSubstr("unknown kind of model 'New'"),
                     [] { (void)Tokenizer::from_json(R"({"model": {"type": "New"}})", "t.json"); });
}

TEST(Tokenizer, RefusesASentencePieceModelThatIsCut) {
  test::expect_error(ErrorKind::kCorrupt, testing::HasSubstr("ends inside a number"),
                     [] { (void)Tokenizer::from_sentencepiece("\x0a\xff", "m"); });
  test::expect_error(ErrorKind::kCorrupt, testing::HasSubstr("no pieces"),
                     [] { (void)Tokenizer::from_sentencepiece("", "m"); });
}

TEST(TokenizerLoad, SaysWhatAFolderLacks) {
  const test::TemporaryFolder folder;
  test::expect_error(ErrorKind::kNotFound, testing::HasSubstr("no tokenizer"),
                     [&] { (void)Tokenizer::load(folder.path()); });
}

TEST(TokenizerLoad, ReadsConfigAndTemplateBesideTheTokenizer) {
  const test::TemporaryFolder folder;
  folder.write("tokenizer.json", small_tokenizers()[1]);
  folder.write(
      "tokenizer_config.json",
      R"({"eos_token": {"content": "<end>"}, "chat_template": "old", "added_tokens_decoder":
               {"300": {"content": "<new>", "special": true, "normalized": false}}})");
  folder.write("chat_template.jinja", "new");
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  EXPECT_EQ(tokenizer.special_tokens().eos, "<end>");
  EXPECT_EQ(tokenizer.chat_template(), "new");
  EXPECT_EQ(tokenizer.encode_ids("<new>").size(), 1u);
}

}  // namespace
}  // namespace haul
