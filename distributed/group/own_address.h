#pragma once

// Where the processes of other machines reach this one. Any thread.

#include <optional>
#include <string>

namespace haul::distributed {

// The address that this machine has on the way to `host`: on host itself, that of host. Nothing is
// sent. Nothing for a loopback address, at which no other machine comes here, and where there is no
// way.
std::optional<std::string> own_address_towards(const std::string& host);

}  // namespace haul::distributed
