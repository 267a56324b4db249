#pragma once

// TCP ports of this machine. Any thread. Throws Error(kResource) where no socket can be had.

namespace haul::core {

// Whether a process may listen there now, on all addresses.
bool port_is_free(int port);

// One that is free now.
int free_port();

}  // namespace haul::core
