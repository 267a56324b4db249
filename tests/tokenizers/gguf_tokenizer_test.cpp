#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/json.h"
#include "haul/tokenizer.h"
#include "tests/support/expect_error.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/temporary_folder.h"
#include "tokenizers/gguf_files.h"

namespace haul {
namespace {

using core::Json;
using test::GgufBytes;
using testing::ElementsAre;
using testing::HasSubstr;

enum Type : std::int32_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

template <class Number>
std::string list(std::uint32_t type, const std::vector<Number>& numbers) {
  std::string bytes = GgufBytes::raw(type) + GgufBytes::raw<std::uint64_t>(numbers.size());
  for (const Number number : numbers) bytes += GgufBytes::raw(number);
  return bytes;
}

GgufBytes tokenizer(std::string_view kind, const std::vector<std::string>& tokens,
                    const std::vector<std::int32_t>& types) {
  GgufBytes file;
  file.text("general.architecture", "x").u32("x.context_length", 77);
  file.text("tokenizer.ggml.model", kind).texts("tokenizer.ggml.tokens", tokens);
  file.entry("tokenizer.ggml.token_type", 9, list(5, types));
  return file;
}

GgufBytes& flag(GgufBytes& file, std::string_view key, bool value) {
  return file.entry(key, 7, std::string(1, value ? '\1' : '\0'));
}

GgufBytes byte_level(std::string_view pre) {
  GgufBytes file = tokenizer(
      "gpt2", {"a", "b", "ab", "\xC4\xA0", "1", "11", "<s>", "<t>", "c"},
      {kNormal, kNormal, kNormal, kNormal, kNormal, kNormal, kControl, kUserDefined, kNormal});
  file.texts("tokenizer.ggml.merges", {"a b", "1 1"}).text("tokenizer.ggml.pre", pre);
  file.u32("tokenizer.ggml.bos_token_id", 6).u32("tokenizer.ggml.eos_token_id", 8);
  return file;
}

GgufBytes sentencepiece(std::string_view kind) {
  GgufBytes file = tokenizer(kind, {"<unk>", "<s>", "</s>", "▁", "a", "b", "ab", "▁a", "  ", "<t>"},
                             {kUnknown, kControl, kControl, kNormal, kNormal, kNormal, kNormal,
                              kNormal, kUserDefined, kUserDefined});
  file.entry("tokenizer.ggml.scores", 9,
             list<float>(6, {0, 0, 0, -3, -4, -5, -2, -1, -1000, -1000}));
  file.u32("tokenizer.ggml.bos_token_id", 1).u32("tokenizer.ggml.eos_token_id", 2);
  file.u32("tokenizer.ggml.unknown_token_id", 0);
  return file;
}

// What the file itself gives, and what the folder written of it gives.
struct Both {
  explicit Both(const GgufBytes& gguf) {
    const std::string bytes = gguf.bytes();
    folder.write("m.gguf", bytes);
    const auto header = core::parse_gguf(test::as_bytes(bytes), "m.gguf");
    for (const auto& made : tokenizers::make_gguf_files(header, "m.gguf")) {
      folder.write("out/" + made.name, made.text);
    }
    file = Tokenizer::load(folder.path() / "m.gguf");
    written = Tokenizer::load(folder.path() / "out");
  }
  // The ids, where both give the same.
  std::vector<TokenId> ids(std::string_view text) const {
    std::vector<TokenId> ids = file->encode_ids(text);
    EXPECT_EQ(written->encode_ids(text), ids) << text;
    EXPECT_EQ(written->encode(text).tokens, file->encode(text).tokens) << text;
    EXPECT_EQ(written->decode(ids), file->decode(ids)) << text;
    EXPECT_EQ(written->decode(ids, true), file->decode(ids, true)) << text;
    return ids;
  }
  Json read(const std::string& name) const { return core::read_json(folder.path() / "out" / name); }

  test::TemporaryFolder folder;
  std::optional<Tokenizer> file;
  std::optional<Tokenizer> written;
};

TEST(GgufTokenizer, WritesByteLevelBpe) {
  GgufBytes file = byte_level("default");
  file.text("tokenizer.chat_template", "{{ bos_token }}\u00e9")
      .u32("tokenizer.ggml.eot_token_id", 6);
  const Both both(file);
  EXPECT_THAT(both.ids("ab b11"), ElementsAre(2, 3, 1, 5));
  EXPECT_THAT(both.ids("<s>a<t>b"), ElementsAre(6, 0, 7, 1));
  EXPECT_TRUE(both.written->is_special(6));
  EXPECT_FALSE(both.written->is_special(7));
  EXPECT_EQ(both.written->special_tokens().bos, "<s>");
  EXPECT_EQ(both.written->chat_template(), "{{ bos_token }}\u00e9");
  constexpr std::string_view kMessages = R"([{"role": "user", "content": "a"}])";
  EXPECT_EQ(both.file->apply_chat(kMessages), "<s>\u00e9");
  EXPECT_EQ(both.written->apply_chat(kMessages), "<s>\u00e9");
  const Json config = both.read("tokenizer_config.json");
  EXPECT_EQ(config.at("model_max_length"), 77);
  EXPECT_EQ(config.at("eos_token"), "c");
  EXPECT_EQ(config.at("add_bos_token"), false);
  EXPECT_EQ(both.read("generation_config.json"), Json::parse(R"({"bos_token_id": 6,
      "eos_token_id": [8, 6]})"));
}

TEST(GgufTokenizer, BeginsATextWhereTheFileOrTheFamilySaysSo) {
  EXPECT_THAT(Both(byte_level("llama-bpe")).ids("a"), ElementsAre(6, 0));
  GgufBytes without = byte_level("llama-bpe");
  EXPECT_THAT(Both(flag(without, "tokenizer.ggml.add_bos_token", false)).ids("a"), ElementsAre(0));
  GgufBytes around = byte_level("smollm");
  flag(flag(around, "tokenizer.ggml.add_bos_token", true), "tokenizer.ggml.add_eos_token", true);
  EXPECT_THAT(Both(around).ids("11"), ElementsAre(6, 4, 4, 8));
}

TEST(GgufTokenizer, WritesSentencePieceBpe) {
  const Both both(sentencepiece("llama"));
  EXPECT_THAT(both.ids("ab b"), ElementsAre(1, 7, 5, 3, 5));
  EXPECT_THAT(both.ids("a<t>a"), ElementsAre(1, 7, 9, 7));
  EXPECT_EQ(both.written->decode(std::vector<TokenId>{1, 7, 5}, true), "ab");
  // Runs of spaces that the user defined come before anything else.
  EXPECT_THAT(both.ids("b   a"), ElementsAre(1, 3, 5, 8, 7));
  GgufBytes bare = sentencepiece("llama");
  EXPECT_THAT(Both(flag(bare, "tokenizer.ggml.add_space_prefix", false)).ids("a"),
              ElementsAre(1, 4));
}

TEST(GgufTokenizer, WritesUnigrams) {
  GgufBytes file = sentencepiece("t5");
  const Both both(flag(file, "tokenizer.ggml.remove_extra_whitespaces", true));
  EXPECT_THAT(both.ids("  ab  b▁ "), ElementsAre(3, 6, 3, 5, 2));
  EXPECT_THAT(both.ids("xyb"), ElementsAre(3, 0, 5, 2));
  EXPECT_THAT(both.ids("<t> a"), ElementsAre(9, 7, 2));
  EXPECT_THAT(both.ids(" "), ElementsAre(2));
}

TEST(GgufTokenizer, WritesWordPieceAndKeepsCapitalsThatTheVocabularyHas) {
  const std::vector<std::string> tokens{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁a", "b", "▁b"};
  const std::vector<std::int32_t> types{kControl, kControl, kControl, kControl,
                                        kNormal,  kNormal,  kNormal};
  const Both both(tokenizer("bert", tokens, types).u32("tokenizer.ggml.bos_token_id", 2));
  EXPECT_THAT(both.ids("Ab B x"), ElementsAre(2, 4, 5, 6, 1, 3));
  EXPECT_EQ(both.written->encode_pair("a", "b").type_ids,
            both.file->encode_pair("a", "b").type_ids);
  EXPECT_EQ(both.written->special_tokens().cls, "[CLS]");
  EXPECT_EQ(both.written->special_tokens().bos, std::nullopt);
  EXPECT_FALSE(std::filesystem::exists(both.folder.path() / "out" / "generation_config.json"));
  std::vector<std::string> cased = tokens;
  cased[6] = "▁B";
  EXPECT_THAT(Both(tokenizer("bert", cased, types)).ids("ab B b"), ElementsAre(2, 4, 5, 6, 1, 3));
}

TEST(GgufTokenizer, KeepsEveryNamedTemplate) {
  GgufBytes file = byte_level("default");
  file.text("tokenizer.chat_template", "one").text("tokenizer.chat_template.tool_use", "two");
  file.texts("tokenizer.chat_templates", {"tool_use", "tool_use"});
  const Both both(file);
  EXPECT_EQ(both.written->chat_template(), "one");
  EXPECT_EQ(both.file->chat_template(), "one");
  EXPECT_EQ(both.read("tokenizer_config.json").at("chat_template"),
            Json::parse(R"([{"name": "default", "template": "one"},
                            {"name": "tool_use", "template": "two"}])"));
}

TEST(GgufTokenizer, WritesTheLastOfTokensThatAreTheSame) {
  GgufBytes file = tokenizer("gpt2", {"a", "b", "a"}, {kNormal, kNormal, kControl});
  file.texts("tokenizer.ggml.merges", {});
  EXPECT_THAT(Both(file).ids("ab"), ElementsAre(2, 1));
}

TEST(GgufTokenizer, RefusesWhatContradictsItself) {
  const auto refuse = [](const GgufBytes& file, ErrorKind kind, std::string_view message) {
    test::expect_error(kind, HasSubstr(message), [&] { (void)Both(file); });
  };
  GgufBytes file = byte_level("default");
  refuse(file.u32("tokenizer.ggml.eot_token_id", 9), ErrorKind::kCorrupt, "there are 9 tokens");
  refuse(byte_level("unheard"), ErrorKind::kUnsupported, "'unheard' is not known");
  refuse(tokenizer("rwkv", {}, {}), ErrorKind::kUnsupported, "'rwkv' is not known");
  refuse(tokenizer("none", {}, {}), ErrorKind::kNotFound, "no tokenizer");
  refuse(tokenizer("llama", {"a"}, {kNormal}), ErrorKind::kCorrupt, "without scores");
  refuse(tokenizer("bert", {"a", "a"}, {kNormal, kNormal}), ErrorKind::kCorrupt, "given twice");
  refuse(tokenizer("gpt2", {"a"}, {7}), ErrorKind::kCorrupt, "unknown type");
  refuse(tokenizer("gpt2", {"\xFF"}, {kNormal}), ErrorKind::kCorrupt, "not UTF-8");
}

}  // namespace
}  // namespace haul
