#pragma once

// The tasks of `haul run` that give no text: a vector, labels, words for a mask.

#include <string>
#include <vector>

#include "cli/torch/prompts.h"
#include "haul/torch/model.h"
#include "haul/torch/partial_state.h"

namespace haul::cli {

// Throws Error(kUsage) that names the tasks there are.
Task parse_task(const std::string& name);

struct TaskInput {
  std::vector<Prompt> texts;
  std::vector<std::string> labels;  // instead of the config's
  bool json = false;                // an object a line
};

// Prints the answers, with an empty line between those to several texts, and on stderr the figures.
// `task` is not kGenerate. Throws Error(kUsage) for labels that are not as many as the model's and
// for a chat, and what the model throws; it names the text's source. Several processes share the
// texts, and the main one prints.
void run_task(LoadedModel& model, Task task, const TaskInput& input, const PartialState& state);

}  // namespace haul::cli
