#pragma once

// The prompts of `haul run` that come from a file or a pipe.

#include <string>
#include <vector>

#include "core/base/json.h"
#include "haul/tokenizer.h"

namespace haul::cli {

struct Prompt {
  std::string text;
  core::Json messages;       // a chat instead of the text; null: none
  std::vector<TokenId> ids;  // tokens instead of the text; empty: none
  std::string source;  // the file and the line, "prompts.jsonl:3"; empty where there is but one
};

// A file is one prompt, unless `lines` says that each of its lines is one, or its name ends in
// .jsonl: then each line is a JSON string or an object with "prompt", "messages" or "ids". Empty
// lines are none. An empty name is stdin. Throws Error(kCorrupt) that names the file and the line,
// Error(kUsage) where a file of lines has none.
std::vector<Prompt> read_prompts(const std::string& file, bool lines);

}  // namespace haul::cli
