#include "distributed/group/own_address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>

namespace haul::distributed {
namespace {

bool is_loopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    return ntohl(four.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
  return IN6_IS_ADDR_LOOPBACK(&six.sin6_addr);
}

// A datagram socket that is connected has an address of its own, and sends nothing.
std::optional<std::string> address_towards(const addrinfo& host) {
  const int descriptor = ::socket(host.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return std::nullopt;
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  auto* const address = reinterpret_cast<sockaddr*>(&own);
  const bool found = ::connect(descriptor, host.ai_addr, host.ai_addrlen) == 0 &&
                     ::getsockname(descriptor, address, &size) == 0;
  ::close(descriptor);
  std::array<char, NI_MAXHOST> name{};
  if (!found || is_loopback(own) ||
      ::getnameinfo(address, size, name.data(), name.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return std::nullopt;
  }
  return name.data();
}

}  // namespace

std::optional<std::string> own_address_towards(const std::string& host) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), "9", &wanted, &found) != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    if (auto address = address_towards(*one)) return address;
  }
  return std::nullopt;
}

}  // namespace haul::distributed
