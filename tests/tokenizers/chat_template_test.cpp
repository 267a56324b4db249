#include "tokenizers/chat_template.h"

#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "haul/error.h"
#include "haul/tokenizer.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace haul::test {
namespace {

using core::Json;
using testing::AllOf;
using testing::HasSubstr;
using tokenizers::apply_chat_template;
using tokenizers::Chat;
using tokenizers::ChatTemplate;

constexpr const char* kTurns =
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

Chat chat_of(const char* messages) {
  Chat chat;
  chat.messages = core::parse_json(messages, "messages");
  return chat;
}

TEST(ChatTemplate, RendersMessagesAndThePrompt) {
  Chat chat = chat_of(R"([{"role": "user", "content": "Hi"}])");
  chat.variables = {{"bos_token", "<s>"}};
  EXPECT_EQ(apply_chat_template(ChatTemplate(kTurns, "t"), chat), "<s><user>Hi");
  chat.add_generation_prompt = true;
  EXPECT_EQ(apply_chat_template(ChatTemplate(kTurns, "t"), chat), "<s><user>Hi<assistant>");
}

TEST(ChatTemplate, ReasoningIsSeenUnderBothNames) {
  const ChatTemplate both("{{ messages[0].reasoning_content }}/{{ messages[0].thinking }}", "t");
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    Chat chat;
    chat.messages = Json::array({{{"role", "assistant"}, {name, "hm"}}});
    EXPECT_EQ(apply_chat_template(both, chat), "hm/hm") << name;
  }
}

TEST(ChatTemplate, ToolsAndDocumentsAreNoneWhenAbsent) {
  const ChatTemplate asks("{{ tools is none }}{{ documents is none }}", "t");
  Chat chat = chat_of(R"([{"role": "user"}])");
  EXPECT_EQ(apply_chat_template(asks, chat), "TrueTrue");
  chat.tools = Json::array();
  EXPECT_EQ(apply_chat_template(asks, chat), "FalseTrue");
}

TEST(ChatTemplate, MessagesOfAWrongShapeAreRefused) {
  const ChatTemplate any("x", "t");
  for (const char* messages : {"[]", "{}", "[1]", "\"hi\"", "[[{\"role\": \"user\"}]]"}) {
    SCOPED_TRACE(messages);
    EXPECT_THROW(apply_chat_template(any, chat_of(messages)), Error);
  }
}

TEST(ChatTemplate, WhatATemplateRaisesIsAnErrorWithItsMessage) {
  expect_error(
      ErrorKind::kUsage, AllOf(HasSubstr("t: line 2: "), HasSubstr("Roles must alternate")), [] {
        ChatTemplate("\n{{ raise_exception('Roles must alternate') }}", "t").render(Json::object());
      });
}

TEST(ChatTemplate, TheClockCanBeFrozen) {
  const ChatTemplate year("{{ strftime_now('%Y') }}", "t");
  EXPECT_EQ(year.render(Json::object(), 1'000'000'000), "2001");
}

TEST(ChatTemplate, OneOfSeveralIsChosenByWhetherThereAreTools) {
  const std::map<std::string, std::string> both = {{"default", "d"}, {"tool_use", "t"}};
  EXPECT_EQ(tokenizers::choose_template(both, false), "d");
  EXPECT_EQ(tokenizers::choose_template(both, true), "t");
  EXPECT_EQ(tokenizers::choose_template({{"default", "d"}, {"rag", "r"}}, true), "d");
  expect_error(ErrorKind::kUsage, HasSubstr("a, b"), [] {
    tokenizers::choose_template({{"a", ""}, {"b", ""}}, true);
  });
}

class ChatOfAModel : public testing::Test {
 protected:
  void SetUp() override {
    write("tokenizer.json", R"({"model": {"type": "WordLevel", "unk_token": "?",
                                "vocab": {"?": 0, "Hi": 1}}})");
  }
  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((folder_.path() / name).parent_path());
    std::ofstream(folder_.path() / name) << text;
  }
  Tokenizer load() const { return Tokenizer::load(folder_.path()); }

  TemporaryFolder folder_;
};

constexpr const char* kHi = R"([{"role": "user", "content": "Hi"}])";

TEST_F(ChatOfAModel, UsesItsTemplateAndItsSpecialTokens) {
  write("tokenizer_config.json", R"({"bos_token": "<s>"})");
  write("chat_template.jinja", kTurns);
  ChatOptions options;
  options.add_generation_prompt = true;
  EXPECT_EQ(load().apply_chat(kHi, options), "<s><user>Hi<assistant>");
}

TEST_F(ChatOfAModel, LoadsWithALengthThatNo64BitsHold) {
  write("tokenizer_config.json",
        R"({"a": "\\\"12345678901234567890", "model_max_length": 1000000000000000019884624838656,
            "x": -0.12345678901234567890, "bos_token": "<s>"})");
  write("chat_template.jinja", "{{ bos_token }}");
  EXPECT_EQ(load().apply_chat(kHi), "<s>");
}

TEST_F(ChatOfAModel, UsesTheTemplateForToolsWhenThereAreTools) {
  write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "plain"},
                                     {"name": "tool_use", "template": "{{ tools | length }}"}]})");
  ChatOptions options;
  EXPECT_EQ(load().apply_chat(kHi, options), "plain");
  options.tools = R"([{"type": "function"}])";
  EXPECT_EQ(load().apply_chat(kHi, options), "1");
}

TEST_F(ChatOfAModel, ReadsFurtherTemplatesFromTheirFolder) {
  write("chat_template.jinja", "plain");
  write("additional_chat_templates/tool_use.jinja", "tools");
  ChatOptions options;
  options.tools = "[]";
  EXPECT_EQ(load().apply_chat(kHi, options), "tools");
  EXPECT_EQ(load().apply_chat(kHi), "plain");
}

TEST_F(ChatOfAModel, PassesFurtherVariablesOn) {
  write("chat_template.jinja", "{{ enable_thinking }}");
  ChatOptions options;
  options.variables = R"({"enable_thinking": false})";
  EXPECT_EQ(load().apply_chat(kHi, options), "False");
}

TEST_F(ChatOfAModel, WithoutATemplateIsNotFound) {
  expect_error(ErrorKind::kNotFound, HasSubstr("no chat template"),
               [&] { load().apply_chat(kHi); });
}

}  // namespace
}  // namespace haul::test
