#include "cli/command.h"
#include "cli/torch/wake.h"
#include "cli/verb.h"

int main(int argc, char** argv) {
  const int code = haul::cli::run_command(argc, argv, [&](CLI::App& app) {
    haul::cli::add_bench(app);
    haul::cli::add_env(app);
    haul::cli::add_run(app, argv);
    haul::cli::add_test(app);
  });
  haul::cli::wait_until_awake();
  return code;
}
