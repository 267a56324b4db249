#include "tokenizers/chat_template.h"

#include <utility>

#include <fmt/format.h>

#include "haul/error.h"
#include "tokenizers/template_json.h"
#include "tokenizers/template_render.h"
#include "tokenizers/utf8.h"

namespace haul::tokenizers {
namespace {

constexpr std::size_t kLongestSource = std::size_t{4} << 20;

// Bytes of text in a document, and something for each of its values.
std::size_t weight(const core::Json& json) {
  std::size_t bytes = 32;
  if (json.is_string()) bytes += json.get_ref<const std::string&>().size();
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) bytes += key.size() + weight(value);
  } else if (json.is_array()) {
    for (const core::Json& value : json) bytes += weight(value);
  }
  return bytes;
}

void require_objects(const core::Json& list, const char* what) {
  bool fine = list.is_array();
  if (fine) {
    for (const core::Json& item : list) fine = fine && item.is_object();
  }
  if (!fine) throw Error(ErrorKind::kUsage, fmt::format("{} must be a list of objects", what));
}

// Reasoning goes by several names; templates read the first or the second.
core::Json with_reasoning(const core::Json& message) {
  static constexpr const char* kNames[] = {"reasoning_content", "thinking", "reasoning"};
  for (const char* name : kNames) {
    const auto found = message.find(name);
    if (found == message.end() || found->is_null()) continue;
    core::Json result = core::Json::object();
    result["thinking"] = *found;
    for (const auto& [key, value] : message.items()) result[key] = value;
    result["reasoning_content"] = *found;
    return result;
  }
  return message;
}

}  // namespace

struct ChatTemplate::Parsed {
  jinja::Body body;
};

ChatTemplate::ChatTemplate(std::string_view source, std::string_view name) : name_(name) {
  if (source.size() > kLongestSource) {
    throw Error(ErrorKind::kResource, fmt::format("{}: a template of more than 4 MiB", name));
  }
  try {
    auto parsed = std::make_shared<Parsed>();
    parsed->body =
        is_utf8(source) ? jinja::parse_template(source) : jinja::parse_template(to_utf8(source));
    parsed_ = std::move(parsed);
  } catch (Error& error) {
    error.add_context(name_);
    throw;
  }
}

std::string ChatTemplate::render(const core::Json& context, std::optional<std::time_t> now) const {
  jinja::Budget budget(weight(context));
  int line = 0;
  try {
    const jinja::Value names = jinja::from_json(context, budget);
    if (!names.is(jinja::Kind::kDict)) jinja::fail("the context must be an object");
    jinja::Renderer renderer(budget, names, now ? *now : std::time(nullptr));
    try {
      return renderer.render(parsed_->body);
    } catch (...) {
      line = renderer.line();
      throw;
    }
  } catch (Error& error) {
    if (line > 0) error.add_context(fmt::format("line {}", line));
    error.add_context(name_);
    throw;
  }
}

std::string apply_chat_template(const ChatTemplate& chat_template, const Chat& chat) {
  require_objects(chat.messages, "messages");
  if (chat.messages.empty()) throw Error(ErrorKind::kUsage, "a chat needs at least one message");
  if (!chat.tools.is_null()) require_objects(chat.tools, "tools");
  if (!chat.documents.is_null()) require_objects(chat.documents, "documents");
  if (!chat.variables.is_object()) throw Error(ErrorKind::kUsage, "variables must be an object");
  core::Json context = chat.variables;
  core::Json messages = core::Json::array();
  for (const core::Json& message : chat.messages) messages.push_back(with_reasoning(message));
  context["messages"] = std::move(messages);
  context["tools"] = chat.tools;
  context["documents"] = chat.documents;
  context["add_generation_prompt"] = chat.add_generation_prompt;
  return chat_template.render(context, chat.now);
}

const std::string& choose_template(const std::map<std::string, std::string>& named,
                                   bool has_tools) {
  auto found = has_tools ? named.find("tool_use") : named.end();
  if (found == named.end()) found = named.find("default");
  if (found != named.end()) return found->second;
  std::string names;
  for (const auto& [name, source] : named) names += (names.empty() ? "" : ", ") + name;
  throw Error(
      ErrorKind::kUsage,
      fmt::format("the model has several chat templates and none is the default: {}", names));
}

}  // namespace haul::tokenizers
