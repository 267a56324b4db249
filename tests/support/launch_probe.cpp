// A rank as a job over TCP has them: rank 0 listens at MASTER_PORT, the others connect; then all
// wait for a message that never comes. Prints "start RANK PID" and, when connected, "ready RANK PID
// PORT".

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

int number(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? -1 : std::atoi(text);
}

}  // namespace

int main() {
  const int rank = number("RANK");
  const int port = number("MASTER_PORT");
  std::printf("start %d %d\n", rank, ::getpid());
  std::fflush(stdout);
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  ::inet_pton(AF_INET, std::getenv("MASTER_ADDR"), &address.sin_addr);
  auto* where = reinterpret_cast<sockaddr*>(&address);
  int peer = -1;
  if (rank == 0) {
    const int on = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(socket, where, sizeof address) != 0 || ::listen(socket, 64) != 0) return 1;
    for (int i = 1; i < number("WORLD_SIZE"); ++i) peer = ::accept(socket, nullptr, nullptr);
  } else {
    while (::connect(socket, where, sizeof address) != 0) ::usleep(1000);
    peer = socket;
  }
  std::printf("ready %d %d %d\n", rank, ::getpid(), port);
  std::fflush(stdout);
  char byte = 0;
  while (peer < 0 || ::recv(peer, &byte, 1, 0) >= 0) ::pause();
  return 0;
}
