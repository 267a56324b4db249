#include "cli/torch/run_processes.h"

#include <algorithm>
#include <cstdlib>

#include "cli/torch/start_processes.h"
#include "core/launch/cpu_topology.h"

namespace haul::cli {
namespace {

// What the launcher would say that it has guessed.
std::string threads_of_each(int processes) {
  const char* const wanted = std::getenv("OMP_NUM_THREADS");
  if (wanted != nullptr && *wanted != '\0') return wanted;
  const auto cores = static_cast<int>(core::read_cores("/", core::allowed_cpus()).size());
  return std::to_string(std::max(1, cores / processes));
}

}  // namespace

void run_in_processes(int processes, char** argv) {
  std::vector<std::string> command;
  for (char** word = argv + 1; *word != nullptr; ++word) command.emplace_back(*word);
  // "--cpu" leaves the config of other launches unread. It takes no GPU away.
  start_processes(
      {"--cpu", "--num_processes", std::to_string(processes), "--num_machines", "1",
       "--mixed_precision", "no", "--num_cpu_threads_per_process", threads_of_each(processes)},
      command);
}

std::vector<Prompt> read_prompts(const PartialState& state, const std::string& file, bool lines) {
  if (!state.use_distributed()) return read_prompts(file, lines);
  constexpr std::size_t kWords = 4;
  std::vector<std::string> words;  // kWords for each
  if (state.is_main_process()) {
    for (const Prompt& prompt : read_prompts(file, lines)) {
      words.insert(words.end(), {prompt.text, prompt.messages.dump(), core::Json(prompt.ids).dump(),
                                 prompt.source});
    }
  }
  words = state.broadcast_object(words);
  std::vector<Prompt> prompts;
  for (std::size_t i = 0; i < words.size(); i += kWords) {
    const std::string& source = words[i + 3];
    prompts.push_back({words[i], core::parse_json(words[i + 1], source),
                       core::parse_json(words[i + 2], source), source});
  }
  return prompts;
}

}  // namespace haul::cli
