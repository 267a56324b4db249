#include "cli/command.h"
#include "cli/torch/early_memory.h"
#include "cli/torch/wake.h"
#include "cli/verb.h"
#include "runtime/tiers/offered_memory.h"

int main(int argc, char** argv) {
  const haul::cli::EarlyMemory early = haul::cli::early_memory();
  haul::runtime::offer_memory(early.data, early.size, early.brought);
  const int code = haul::cli::run_command(argc, argv, [&](CLI::App& app) {
    haul::cli::add_bench(app);
    haul::cli::add_env(app);
    haul::cli::add_run(app, argv);
    haul::cli::add_test(app);
  });
  haul::cli::wait_until_awake();
  return code;
}
