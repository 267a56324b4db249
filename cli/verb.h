#pragma once

// A verb is one file with one function that adds its subcommand, its flags and, as the
// subcommand's callback, its work. Results go to stdout, everything else to stderr; a verb fails by
// throwing Error, which main prints.

#include <CLI/CLI.hpp>

namespace haul::cli {

// Without torch.
void add_config(CLI::App& app);
void add_convert(CLI::App& app);
void add_download(CLI::App& app);
void add_estimate(CLI::App& app);
void add_launch(CLI::App& app);
void add_map(CLI::App& app);
void add_plan(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_tree(CLI::App& app);

// On tensors, in cli/torch.
void add_bench(CLI::App& app);
void add_env(CLI::App& app);
void add_run(CLI::App& app, char** argv);
void add_test(CLI::App& app);

}  // namespace haul::cli
