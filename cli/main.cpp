#include "cli/command.h"
#include "cli/env.h"
#include "cli/torch_verbs.h"
#include "cli/verb.h"

int main(int argc, char** argv) {
  return haul::cli::run_command(argc, argv, [&](CLI::App& app) {
    haul::cli::add_config(app);
    haul::cli::add_convert(app);
    haul::cli::add_download(app);
    haul::cli::add_env(app, [&](haul::core::Json&) { haul::cli::continue_with_torch(argv); });
    haul::cli::add_estimate(app);
    haul::cli::add_launch(app);
    haul::cli::add_map(app);
    haul::cli::add_plan(app);
    haul::cli::add_tokenize(app);
    haul::cli::add_tree(app);
    haul::cli::add_torch_verbs(app, argv);
  });
}
