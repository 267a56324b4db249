#pragma once

// A model's chat template: messages in, the text that the model was trained on out, as
// transformers' apply_chat_template(tokenize=False) gives it. Templates are foreign code and run in
// a sandbox: they see what they are given, change nothing, and their steps, memory, depth and
// output are bounded (template_budget.h). Immutable, so from any thread.
//
// Failure is an Error that names the template and the line: kCorrupt for a template that is broken
// or does what Python would refuse, kUnsupported for tags that reach for other templates, kUsage
// for messages that the template refuses by raise_exception, kResource for one that asks for too
// much.

#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/json.h"

namespace haul::tokenizers {

class ChatTemplate {
 public:
  // The Jinja source; `name` stands in messages.
  ChatTemplate(std::string_view source, std::string_view name);

  // `context` is an object whose members the template sees by name. strftime_now tells `now`, or
  // the clock's time.
  std::string render(const core::Json& context, std::optional<std::time_t> now = {}) const;

 private:
  struct Parsed;
  std::string name_;
  std::shared_ptr<const Parsed> parsed_;
};

struct Chat {
  core::Json messages;   // an array of objects with a role and a content
  core::Json tools;      // an array of JSON schemas of functions, or null
  core::Json documents;  // an array of objects, or null
  bool add_generation_prompt = false;
  // What else the template sees: bos_token, eos_token, enable_thinking, …
  core::Json variables = core::Json::object();
  std::optional<std::time_t> now;
};

// Throws Error(kUsage) when messages, tools or documents are not what Chat says.
std::string apply_chat_template(const ChatTemplate& chat_template, const Chat& chat);

// The template that a model with several named ones uses: "tool_use" when there are tools, else
// "default". Throws Error(kUsage) when there is neither.
const std::string& choose_template(const std::map<std::string, std::string>& named, bool has_tools);

}  // namespace haul::tokenizers
