#pragma once

// What both executables share: the command line's frame, errors and exit codes.

#include <functional>

#include <CLI/CLI.hpp>

#include "haul/error.h"

namespace haul::cli {

// Thrown by a verb that ends with a code of its own and has said all there is to say.
struct ExitCode {
  int value = 0;
};

// On stderr: one line, and the hint below it.
void print_error(const Error& error);

// Parses the command line with the verbs that `add_verbs` adds and runs the one that was asked for.
// Returns the process's exit code: 0 done, 1 failed, 2 usage.
int run_command(int argc, char** argv, const std::function<void(CLI::App&)>& add_verbs);

}  // namespace haul::cli
