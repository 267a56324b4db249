// Reads requests, one JSON object a line, and answers each with a line: {"text": …} or
// {"error": …}. A request has "template", and either "context" for a plain render or "messages" and
// what else a chat has; "now" freezes the clock. For tests that compare with transformers.

#include <iostream>
#include <string>

#include "core/base/json.h"
#include "haul/error.h"
#include "tokenizers/chat_template.h"

namespace {

using haul::core::Json;

std::string answer(const Json& request) {
  const haul::tokenizers::ChatTemplate chat_template(request.at("template").get<std::string>(),
                                                     "template");
  std::optional<std::time_t> now;
  if (request.contains("now")) now = request.at("now").get<std::time_t>();
  if (request.contains("context")) return chat_template.render(request.at("context"), now);
  haul::tokenizers::Chat chat;
  chat.messages = request.at("messages");
  chat.tools = request.value("tools", Json());
  chat.documents = request.value("documents", Json());
  chat.add_generation_prompt = request.value("add_generation_prompt", false);
  chat.variables = request.value("variables", Json::object());
  chat.now = now;
  return haul::tokenizers::apply_chat_template(chat_template, chat);
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    Json reply;
    try {
      reply["text"] = answer(haul::core::parse_json(line, "request"));
    } catch (const haul::Error& error) {
      reply["error"] = error.what();
    }
    std::cout << reply.dump() << "\n";
  }
}
