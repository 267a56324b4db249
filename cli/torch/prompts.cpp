#include "cli/torch/prompts.h"

#include <iostream>
#include <iterator>
#include <limits>
#include <sstream>

#include <fmt/format.h>

#include "core/base/file.h"
#include "haul/error.h"

namespace haul::cli {
namespace {

constexpr Bytes kMaxPromptFile = 64 * kMiB;

Prompt from_json(const core::Json& json, const std::string& source) {
  const auto fail = [&](const char* why) {
    throw Error(ErrorKind::kCorrupt, fmt::format("{}: {}", source, why),
                "a line is a JSON string, {\"prompt\": TEXT}, {\"messages\": [...]} or "
                "{\"ids\": [1, 2, 3]}");
  };
  Prompt prompt;
  prompt.source = source;
  if (json.is_string()) {
    prompt.text = json.get<std::string>();
    return prompt;
  }
  if (!json.is_object()) fail("is neither a string nor an object");
  const auto text = json.find("prompt");
  const auto messages = json.find("messages");
  const auto ids = json.find("ids");
  if ((text != json.end()) + (messages != json.end()) + (ids != json.end()) != 1) {
    fail("has not one of 'prompt', 'messages' and 'ids'");
  }
  if (messages != json.end()) {
    if (!messages->is_array() || messages->empty()) fail("'messages' is not a list of messages");
    prompt.messages = *messages;
  } else if (ids != json.end()) {
    if (!ids->is_array() || ids->empty()) fail("'ids' is not a list of tokens");
    for (const core::Json& id : *ids) {
      if (!id.is_number_integer() || id < 0 || id > std::numeric_limits<TokenId>::max()) {
        fail("'ids' holds what is no token");
      }
      prompt.ids.push_back(id.get<TokenId>());
    }
  } else {
    if (!text->is_string()) fail("'prompt' is not a text");
    prompt.text = text->get<std::string>();
  }
  return prompt;
}

void drop_return(std::string& line) {
  if (line.ends_with('\r')) line.pop_back();
}

}  // namespace

std::vector<Prompt> read_prompts(const std::string& file, bool lines) {
  std::string text = file.empty() ? std::string(std::istreambuf_iterator<char>(std::cin), {})
                                  : core::read_file(file, kMaxPromptFile);
  const bool as_json = file.ends_with(".jsonl");
  if (!lines && !as_json) {
    // The end of the last line is no part of the text.
    if (text.ends_with('\n')) text.pop_back();
    drop_return(text);
    return {{text, nullptr, {}, {}}};
  }
  const std::string name = file.empty() ? "stdin" : file;
  std::vector<Prompt> prompts;
  std::istringstream stream(std::move(text));
  std::size_t number = 1;
  for (std::string line; std::getline(stream, line); ++number) {
    drop_return(line);
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    const std::string source = fmt::format("{}:{}", name, number);
    prompts.push_back(as_json ? from_json(core::parse_json(line, source), source)
                              : Prompt{line, nullptr, {}, source});
  }
  if (prompts.empty()) throw Error(ErrorKind::kUsage, fmt::format("{}: has no prompts", name));
  return prompts;
}

}  // namespace haul::cli
