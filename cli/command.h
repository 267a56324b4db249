#pragma once

// What both executables share: the command line's frame, errors and exit codes.

#include <functional>

#include <CLI/CLI.hpp>

namespace haul::cli {

// Parses the command line with the verbs that `add_verbs` adds and runs the one that was asked for.
// Returns the process's exit code: 0 done, 1 failed, 2 usage.
int run_command(int argc, char** argv, const std::function<void(CLI::App&)>& add_verbs);

}  // namespace haul::cli
