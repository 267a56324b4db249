#pragma once

// `haul run` over several processes that share the prompts of a file.

#include <string>
#include <vector>

#include "cli/torch/prompts.h"
#include "haul/torch/partial_state.h"

namespace haul::cli {

// Starts `processes` of this very command on this machine, with an equal share of its cores each.
// Does not return.
[[noreturn]] void run_in_processes(int processes, char** argv);

// What the main process reads, for all of them; only it has a standard input.
std::vector<Prompt> read_prompts(const PartialState& state, const std::string& file, bool lines);

}  // namespace haul::cli
