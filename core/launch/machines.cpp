#include "core/launch/machines.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "core/launch/ports.h"
#include "haul/error.h"

namespace haul::core {
namespace {

constexpr std::size_t kMaxLine = 4096;
constexpr std::chrono::milliseconds kRetry{100};
constexpr const char* kHello = "haul-launch-1";

[[noreturn]] void fail(const std::string& message, const std::string& hint = {}) {
  throw Error(ErrorKind::kResource, message, hint);
}

void set_option(int descriptor, int level, int option, int value) {
  ::setsockopt(descriptor, level, option, &value, sizeof value);
}

// A machine that has lost its power is noticed within a minute.
void keep_alive(int descriptor) {
  set_option(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, 20);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPCNT, 4);
  set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
}

void send_line(int descriptor, std::string line) {
  line += '\n';
  // Short, and the other side reads all the time; one that is gone is noticed when reading.
  [[maybe_unused]] const ssize_t sent =
      ::send(descriptor, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Where nobody listens yet, a socket may happen to call from the port that it calls.
bool is_own(int descriptor) {
  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t here_size = sizeof here;
  socklen_t there_size = sizeof there;
  return ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&here), &here_size) == 0 &&
         ::getpeername(descriptor, reinterpret_cast<sockaddr*>(&there), &there_size) == 0 &&
         here_size == there_size && std::memcmp(&here, &there, here_size) == 0;
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

}  // namespace

Machines::Machines(const LaunchPlan& plan, const Signals& signals,
                   std::chrono::milliseconds timeout)
    : plan_(plan), signals_(signals), timeout_(timeout) {}

Machines::~Machines() {
  if (listener_ >= 0) ::close(listener_);
  for (const Peer& peer : peers_) {
    if (peer.descriptor >= 0) ::close(peer.descriptor);
  }
}

int Machines::meet(int attempt) {
  if (plan_.num_machines == 1) return 0;
  attempt_ = attempt;
  failure_.reset();
  const auto end = Clock::now() + timeout_;
  if (attempt == 0 && is_main()) listen();
  if (attempt == 0 && !is_main()) connect(end);
  if (!is_main() && signal_ == 0) send_line(peers_[0].descriptor, fmt::format("ready {}", attempt));
  check_all_are_there();
  const auto others = static_cast<std::size_t>(plan_.num_machines - 1);
  while (signal_ == 0 && (is_main() ? count(&Peer::ready) < others : go_ < attempt)) {
    if (!wait(end, listener_, POLLIN)) {
      fail(fmt::format("{} did not come within {} s", missing(), timeout_.count() / 1000),
           "is 'haul launch' running there, with the same address and port?");
    }
    if (attempt == 0 && !is_main()) leave_a_stranger(end);
    check_all_are_there();
  }
  if (listener_ >= 0) ::close(std::exchange(listener_, -1));  // rank 0 listens there now
  if (is_main() && signal_ == 0) {
    for (Peer& peer : peers_) {
      if (peer.machine > 0) {
        send_line(peer.descriptor, fmt::format("go {}", attempt));
      } else if (peer.descriptor >= 0) {
        ::close(std::exchange(peer.descriptor, -1));  // a stranger
      }
    }
  }
  return signal_;
}

// Whoever had the port before machine 0 hangs up, sooner or later.
void Machines::leave_a_stranger(Clock::time_point end) {
  if (go_ >= 0 || peers_[0].descriptor >= 0) return;
  peers_.clear();
  failure_.reset();
  wait(std::min(end, Clock::now() + kRetry), -1, 0);
  connect(end);
  if (signal_ == 0) send_line(peers_[0].descriptor, "ready 0");
}

void Machines::check_all_are_there() const {
  if (failure_ && !failure_->restarts) fail(failure_->text);
  for (const Peer& peer : peers_) {
    if (peer.machine >= 0 && peer.descriptor < 0) {
      fail(fmt::format("the launcher of machine {} is gone", peer.machine));
    }
  }
}

void Machines::tell(const RemoteFailure& failure) const {
  for (const Peer& peer : peers_) {
    send_line(peer.descriptor,
              fmt::format("failed {} {} {} machine {}: {}", attempt_, failure.exit_code,
                          failure.restarts ? 1 : 0, plan_.machine_rank, failure.text));
  }
}

int Machines::wait_for_the_others(std::optional<RemoteFailure>* failure) {
  if (plan_.num_machines == 1) return 0;
  if (!is_main()) send_line(peers_[0].descriptor, fmt::format("done {}", attempt_));
  const auto others = static_cast<std::size_t>(plan_.num_machines - 1);
  while (signal_ == 0 && !failure_ && (is_main() ? count(&Peer::done) < others : end_ < attempt_)) {
    wait(Clock::time_point::max(), -1, 0);
  }
  *failure = std::exchange(failure_, std::nullopt);
  if (is_main() && signal_ == 0 && !*failure) {
    for (const Peer& peer : peers_) send_line(peer.descriptor, fmt::format("end {}", attempt_));
  }
  return signal_;
}

std::vector<int> Machines::descriptors() const {
  std::vector<int> result;
  result.reserve(peers_.size());
  for (const Peer& peer : peers_) result.push_back(peer.descriptor);
  return result;
}

std::optional<RemoteFailure> Machines::read() {
  for (Peer& peer : peers_) take_lines(peer);
  return std::exchange(failure_, std::nullopt);
}

void Machines::listen() {
  listener_ = listen_at(plan_.master_port, plan_.num_machines);
  if (listener_ < 0) {
    fail(fmt::format("port {}: {}", plan_.master_port, std::strerror(-listener_)));
  }
}

// A connected socket, or -errno.
int Machines::try_connect(Clock::time_point end) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const std::string port = std::to_string(plan_.master_port);
  const int code = ::getaddrinfo(plan_.master_addr.c_str(), port.c_str(), &hints, &list);
  if (code != 0) fail(fmt::format("{}: {}", plan_.master_addr, ::gai_strerror(code)));
  const std::unique_ptr<addrinfo, FreeAddresses> owner(list);
  int result = -EADDRNOTAVAIL;
  for (const addrinfo* at = list; at != nullptr && signal_ == 0; at = at->ai_next) {
    const int descriptor = ::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0) continue;
    int error = 0;
    socklen_t size = sizeof error;
    if (::connect(descriptor, at->ai_addr, at->ai_addrlen) != 0) error = errno;
    if (error == EINPROGRESS) {
      error = ETIMEDOUT;
      if (wait(end, descriptor, POLLOUT)) {
        ::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size);
      }
    }
    if (error == 0 && is_own(descriptor)) error = ECONNREFUSED;
    if (error == 0) return descriptor;
    result = -error;
    ::close(descriptor);
  }
  return result;
}

void Machines::connect(Clock::time_point end) {
  int descriptor = -1;
  while (signal_ == 0 && (descriptor = try_connect(end)) < 0) {
    if (Clock::now() >= end) {
      fail(fmt::format("machine 0 at {}:{} did not answer within {} s: {}", plan_.master_addr,
                       plan_.master_port, timeout_.count() / 1000, std::strerror(-descriptor)),
           "is 'haul launch' running there, with this address and port?");
    }
    wait(std::min(end, Clock::now() + kRetry), -1, 0);
  }
  if (signal_ != 0) return;
  keep_alive(descriptor);
  Peer peer;
  peer.descriptor = descriptor;
  peer.machine = 0;
  peers_.push_back(std::move(peer));
  send_line(descriptor, fmt::format("{} {} {} {}", kHello, plan_.machine_rank, plan_.num_machines,
                                    plan_.world));
}

// For something to happen: a line, a connection, a signal, or `events` on `descriptor`. False at
// the end of the time.
bool Machines::wait(Clock::time_point end, int descriptor, short events) {
  int timeout = -1;
  if (end != Clock::time_point::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    timeout = static_cast<int>(std::clamp<long long>(left, 0, 1 << 30));
  }
  std::vector<pollfd> wanted{{signals_.descriptor(), POLLIN, 0}, {descriptor, events, 0}};
  for (const Peer& peer : peers_) wanted.push_back({peer.descriptor, POLLIN, 0});
  const int came = ::poll(wanted.data(), wanted.size(), timeout);
  if (came == 0) return false;
  if (wanted[0].revents != 0) {
    while (const auto signal = signals_.next()) {
      if (signal->asks_to_end()) signal_ = signal->number;
    }
  }
  for (Peer& peer : peers_) take_lines(peer);
  if (descriptor == listener_ && wanted[1].revents != 0) accept();
  return true;
}

void Machines::accept() {
  const int descriptor = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (descriptor < 0) return;
  keep_alive(descriptor);
  Peer peer;
  peer.descriptor = descriptor;
  peers_.push_back(std::move(peer));
}

void Machines::take_lines(Peer& peer) {
  while (peer.descriptor >= 0) {
    std::array<char, kMaxLine> chunk;
    const ssize_t count = ::recv(peer.descriptor, chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (count > 0) peer.text.append(chunk.data(), static_cast<std::size_t>(count));
    for (std::size_t end = peer.text.find('\n'); end != peer.text.npos;
         end = peer.text.find('\n')) {
      const std::string line = peer.text.substr(0, end);
      peer.text.erase(0, end + 1);
      understand(peer, line);
      if (peer.descriptor < 0) return;
    }
    if (count > 0 && peer.text.size() <= kMaxLine) continue;
    ::close(std::exchange(peer.descriptor, -1));
    const bool over = end_ == attempt_ || (is_main() && peer.done == attempt_);
    if (peer.machine < 0 || over) return;
    fail_from(peer, {fmt::format("the launcher of machine {} is gone", peer.machine), 1, false});
  }
}

void Machines::understand(Peer& peer, const std::string& line) {
  if (peer.machine < 0) {
    hear_hello(peer, line);
    return;
  }
  std::istringstream words(line);
  std::string word;
  int attempt = -1;
  words >> word;
  if (word == "refused") {
    throw Error(ErrorKind::kUsage, "machine 0 refuses this one:" + line.substr(word.size()));
  }
  words >> attempt;
  if (word == "ready") {
    peer.ready = attempt;
  } else if (word == "done") {
    peer.done = attempt;
  } else if (word == "go") {
    go_ = attempt;
  } else if (word == "end") {
    end_ = attempt;
  } else if (word == "failed" && attempt == attempt_) {
    RemoteFailure failure;
    int restarts = 0;
    words >> failure.exit_code >> restarts >> std::ws;
    std::getline(words, failure.text);
    failure.restarts = restarts != 0;
    fail_from(peer, std::move(failure));
    for (const Peer& other : peers_) {
      if (is_main() && &other != &peer) send_line(other.descriptor, line);
    }
  }
}

// A stranger who talks at this port is left alone.
void Machines::hear_hello(Peer& peer, const std::string& line) const {
  std::istringstream words(line);
  std::string hello;
  int machine = 0;
  int machines = 0;
  int world = 0;
  words >> hello >> machine >> machines >> world;
  std::string wrong;
  if (machines != plan_.num_machines || world != plan_.world) {
    wrong = fmt::format("{} processes on {} machines there, {} on {} here", world, machines,
                        plan_.world, plan_.num_machines);
  } else if (machine < 1 || machine >= machines) {
    wrong = fmt::format("machine_rank {}", machine);
  }
  for (const Peer& other : peers_) {
    if (other.machine == machine) wrong = fmt::format("there is a machine {} already", machine);
  }
  if (hello == kHello && wrong.empty()) {
    peer.machine = machine;
    return;
  }
  if (hello == kHello) send_line(peer.descriptor, "refused " + wrong);
  ::close(std::exchange(peer.descriptor, -1));
}

void Machines::fail_from(const Peer& peer, RemoteFailure failure) {
  for (char& c : failure.text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  if (failure.exit_code < 1 || failure.exit_code > 255) failure.exit_code = 1;
  if (!failure_) failure_ = std::move(failure);
  if (peer.descriptor < 0 && is_main()) {
    for (const Peer& other : peers_) {
      if (other.descriptor >= 0) {
        send_line(other.descriptor,
                  fmt::format("failed {} {} 0 {}", attempt_, failure_->exit_code, failure_->text));
      }
    }
  }
}

std::size_t Machines::count(int Peer::*what) const {
  return static_cast<std::size_t>(
      std::count_if(peers_.begin(), peers_.end(),
                    [&](const Peer& peer) { return peer.machine > 0 && peer.*what == attempt_; }));
}

std::string Machines::missing() const {
  if (!is_main()) return "the start of all machines";
  std::vector<int> numbers;
  for (int machine = 1; machine < plan_.num_machines; ++machine) {
    const bool there = std::any_of(peers_.begin(), peers_.end(), [&](const Peer& peer) {
      return peer.machine == machine && peer.ready == attempt_;
    });
    if (!there) numbers.push_back(machine);
  }
  return fmt::format("machine{} {}", numbers.size() == 1 ? "" : "s", fmt::join(numbers, ", "));
}

}  // namespace haul::core
