#include "haul/error.h"
#include "haul/tokenizer.h"
#include "tokenizers/chat_template.h"
#include "tokenizers/state.h"

namespace haul {
namespace {

core::Json parse_or(const std::string& text, const char* what, core::Json otherwise) {
  return text.empty() ? std::move(otherwise) : core::parse_json(text, what);
}

core::Json special_variables(const SpecialTokens& special) {
  core::Json variables = core::Json::object();
  const auto add = [&](const char* name, const std::optional<std::string>& token) {
    if (token) variables[name] = *token;
  };
  add("bos_token", special.bos);
  add("eos_token", special.eos);
  add("unk_token", special.unk);
  add("sep_token", special.sep);
  add("pad_token", special.pad);
  add("cls_token", special.cls);
  add("mask_token", special.mask);
  return variables;
}

}  // namespace

std::string Tokenizer::apply_chat(std::string_view messages, const ChatOptions& options) const {
  const tokenizers::Pipeline& pipeline = state_->pipeline;
  if (!pipeline.chat_template) {
    throw Error(ErrorKind::kNotFound, "the model has no chat template",
                "use a model that was tuned for chats");
  }
  tokenizers::Chat chat;
  chat.messages = core::parse_json(messages, "messages");
  chat.tools = parse_or(options.tools, "tools", nullptr);
  chat.documents = parse_or(options.documents, "documents", nullptr);
  chat.add_generation_prompt = options.add_generation_prompt;
  chat.variables = special_variables(pipeline.special);
  const core::Json more = parse_or(options.variables, "variables", core::Json::object());
  if (!more.is_object()) throw Error(ErrorKind::kUsage, "variables must be an object");
  for (const auto& [name, value] : more.items()) chat.variables[name] = value;
  const std::string& source =
      pipeline.named_templates.empty()
          ? *pipeline.chat_template
          : tokenizers::choose_template(pipeline.named_templates, !chat.tools.is_null());
  return apply_chat_template(tokenizers::ChatTemplate(source, "chat template"), chat);
}

}  // namespace haul
