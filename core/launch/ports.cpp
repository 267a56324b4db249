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

// Listens on a port, 0 for any, for a moment. Tells which one, or -errno.
int try_port(int family, int port) {
  const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  const int on = 1;
  const int off = 0;
  // What an earlier listener has left behind (TIME_WAIT) is no obstacle.
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in6 six{};
  sockaddr_in four{};
  sockaddr* address = reinterpret_cast<sockaddr*>(&four);
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
  int result = 0;
  if (::bind(fd, address, size) == 0 && ::listen(fd, 1) == 0 &&
      ::getsockname(fd, address, &size) == 0) {
    result = ntohs(family == AF_INET6 ? six.sin6_port : four.sin_port);
  } else {
    result = -errno;
  }
  ::close(fd);
  return result;
}

// On all addresses of both families, where there are both.
int try_port(int port) {
  const int result = try_port(AF_INET6, port);
  return result == -EAFNOSUPPORT || result == -EADDRNOTAVAIL ? try_port(AF_INET, port) : result;
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
