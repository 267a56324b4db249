#pragma once

// The questions of `haul config`. Each has a default and is asked again after an answer that cannot
// be.

#include <functional>
#include <optional>
#include <string>

#include "core/launch/launch_config.h"

namespace haul::cli {

// Shows a text and returns the line that was typed, nothing at the end of input.
using Ask = std::function<std::optional<std::string>(const std::string& text)>;

// The config that the answers describe. Sections that are not asked for, and the defaults, come
// from `before`. Throws Error(kResource) when the input ends before the last question.
core::LaunchConfig ask_config(const core::LaunchConfig& before, int gpus, const Ask& ask);

// What a machine with so many GPUs wants, without questions.
core::LaunchConfig default_config(int gpus);

}  // namespace haul::cli
