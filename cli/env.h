#pragma once

// `haul env`: what a report of a problem needs. Both executables have it; the one with torch adds
// what torch knows.

#include <functional>

#include <CLI/CLI.hpp>

#include "core/base/json.h"

namespace haul::cli {

// `more` adds to the report before it is printed.
void add_env(CLI::App& app, const std::function<void(core::Json&)>& more);

}  // namespace haul::cli
