// One process under test: parallel_worker CASE [FOLDER [MORE]]. Ends with 0 when all it saw was
// right, else says what was not.

#include "tests/distributed/parallel/parallel_worker.h"

#include <cstdlib>
#include <iostream>

namespace haul::test {

void fail(const std::string& what) {
  std::cerr << "WRONG: " << what << std::endl;
  std::_Exit(1);
}

}  // namespace haul::test

int main(int count, char** values) {
  using namespace haul::test;  // NOLINT: a program of its own
  const std::string name = count > 1 ? values[1] : "";
  const std::filesystem::path folder = count > 2 ? values[2] : "";
  haul::PartialStateOptions options;
  options.cpu = true;
  options.timeout = std::chrono::seconds(120);
  try {
    if (name == "write_model") write_model(folder, values[3], count > 4 ? values[4] : "");
    if (name == "write_weights") write_weights(folder);
    if (name.starts_with("write")) return 0;
    const haul::PartialState state(options);
    if (name == "blocks") run_blocks(state);
    if (name == "failing_blocks") run_failing_blocks(state);
    if (name == "death") die_in_a_pass();
    if (name == "family") run_family(state, folder);
    if (name == "generation") run_generation(state, folder);
    if (name == "share_layers") share_layers(state, folder);
    if (name == "share_generation") share_generation(state, folder);
    if (name == "read_own_rows") read_own_rows(state, folder);
    if (name == "refuse_to_share") refuse_to_share(state, folder);
    if (name == "die_in_a_shared_pass") die_in_a_shared_pass(state, folder);
    if (name == "share_weights") share_weights(state, folder);
    if (name == "own_weights") load_own_weights(state, folder);
    state.wait_for_everyone();
  } catch (const haul::Error& error) {
    std::cerr << "haul: error: " << error.what() << std::endl;
    return 3;
  }
  return 0;
}
