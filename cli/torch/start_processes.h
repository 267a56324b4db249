#pragma once

// A verb that several processes do: it starts itself again under `haul launch`.

#include <string>
#include <vector>

namespace haul::cli {

// Replaces this process by `haul launch FLAGS haul COMMAND`. Throws Error(kResource) where it
// cannot be started.
[[noreturn]] void start_processes(const std::vector<std::string>& flags,
                                  const std::vector<std::string>& command);

}  // namespace haul::cli
