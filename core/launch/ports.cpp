#include "core/launch/ports.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include <fmt/format.h>

#include "haul/error.h"

namespace haul::core {
namespace {

int listen_in(int family, int port, int backlog) {
  const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  const int on = 1;
  const int off = 0;
  // What an earlier listener has left behind (TIME_WAIT) is no obstacle, and others may listen here
  // when this one has ended while its connections go on.
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in6 six{};
  sockaddr_in four{};
  const sockaddr* address = reinterpret_cast<sockaddr*>(&four);
  socklen_t size = sizeof four;
  four.sin_family = AF_INET;
  four.sin_port = htons(static_cast<std::uint16_t>(port));
  if (family == AF_INET6) {
    ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    six.sin6_family = AF_INET6;
    six.sin6_port = four.sin_port;
    address = reinterpret_cast<sockaddr*>(&six);
    size = sizeof six;
  }
  if (::bind(fd, address, size) == 0 && ::listen(fd, backlog) == 0) return fd;
  const int error = errno;
  ::close(fd);
  return -error;
}

}  // namespace

int listen_at(int port, int backlog) {
  const int result = listen_in(AF_INET6, port, backlog);
  const bool no_six = result == -EAFNOSUPPORT || result == -EADDRNOTAVAIL;
  return no_six ? listen_in(AF_INET, port, backlog) : result;
}

namespace {

// Listens for a moment. Tells at which port, or -errno.
int try_port(int port) {
  const int fd = listen_at(port, 1);
  if (fd < 0) return fd;
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  const bool known = ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  const int error = errno;
  ::close(fd);
  if (!known) return -error;
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

}  // namespace

bool port_is_free(int port) {
  return try_port(port) > 0;
}

int free_port() {
  const int port = try_port(0);
  if (port > 0) return port;
  throw Error(ErrorKind::kResource, fmt::format("no free port: {}", std::strerror(-port)));
}

}  // namespace haul::core
