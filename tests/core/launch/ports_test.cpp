#include "core/launch/ports.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace haul::core {
namespace {

TEST(Ports, AFreeOneIsFreeUntilSomeoneListensThere) {
  const int port = free_port();
  ASSERT_GT(port, 0);
  EXPECT_TRUE(port_is_free(port));
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  EXPECT_FALSE(port_is_free(port));
  ::close(listener);
  EXPECT_TRUE(port_is_free(port));
}

}  // namespace
}  // namespace haul::core
