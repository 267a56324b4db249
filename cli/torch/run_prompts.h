#pragma once

// Continuing prompts: one whose text is shown as it comes, or many, some at once.

#include <string>
#include <vector>

#include "cli/torch/prompts.h"
#include "haul/torch/model.h"
#include "haul/torch/partial_state.h"
#include "haul/torch/pipelined_model.h"
#include "haul/torch/tensor_parallel_model.h"

namespace haul::cli {

struct PromptOptions {
  std::string system;      // the system's words before a chat
  bool raw = false;        // without the chat template
  bool json = false;       // an object a line
  std::int64_t batch = 1;  // prompts at once
  GenerateOptions generate;
};

// The messages that a chat begins with.
core::Json first_messages(const PromptOptions& options);
// Up to where the assistant begins to speak.
std::vector<TokenId> chat_ids(const Tokenizer& tokenizer, const core::Json& messages);

// Writes to stdout as it is. The text of a token is shown at once.
void show(std::string_view text);

// Print the answers, those to many in their order with an empty line between them, and on stderr
// the figures. Until interrupted. Errors name the prompt's source. Several processes share the
// prompts, `batch` at a time, and the main one prints.
void answer(LoadedModel& model, const std::vector<Prompt>& prompts, const PromptOptions& options,
            const PartialState& state);
// The same by processes that have a stage of the model, or a part of its layers, each.
void answer(PipelinedModel& model, const std::vector<Prompt>& prompts, const PromptOptions& options,
            const PartialState& state);
void answer(TensorParallelModel& model, const std::vector<Prompt>& prompts,
            const PromptOptions& options, const PartialState& state);

}  // namespace haul::cli
