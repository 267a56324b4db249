#pragma once

// TCP ports of this machine. Any thread. Throws Error(kResource) where no socket can be had.

namespace haul::core {

// Listens on all addresses of both families, where there are both, at a port, 0 for any. Tells the
// descriptor, or -errno.
int listen_at(int port, int backlog);

// Whether a process may listen there now, on all addresses.
bool port_is_free(int port);

// One that is free now.
int free_port();

}  // namespace haul::core
