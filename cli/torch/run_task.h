#pragma once

// The tasks of `haul run` that give no text: a vector, labels, words for a mask.

#include <string>
#include <vector>

#include "haul/torch/model.h"

namespace haul::cli {

// Throws Error(kUsage) that names the tasks there are.
Task parse_task(const std::string& name);

struct TaskInput {
  std::string text;
  std::vector<TokenId> ids;         // instead of the text, where there are any
  std::vector<std::string> labels;  // instead of the config's
  bool json = false;
};

// Prints the answer. `task` is not kGenerate. Throws Error(kUsage) for labels that are not as many
// as the model's, and what the model throws.
void run_task(LoadedModel& model, Task task, const TaskInput& input);

}  // namespace haul::cli
