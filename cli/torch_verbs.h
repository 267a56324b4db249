#pragma once

// The verbs that touch tensors live in a second executable, so that those which only decide start
// without loading torch. Here they are names: the command replaces itself by the other.

#include <CLI/CLI.hpp>

namespace haul::cli {

// Adds each of them. Never returns from a verb that starts; throws Error(kUnsupported) where the
// other executable is not installed.
void add_torch_verbs(CLI::App& app, char** argv);

// Replaces this process by the other executable; returns where that is not installed.
void continue_with_torch(char** argv);

}  // namespace haul::cli
