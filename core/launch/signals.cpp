#include "core/launch/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "haul/error.h"

namespace haul::core {

Signals::Signals() {
  sigset_t answered;
  sigemptyset(&answered);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGTSTP}) {
    struct sigaction action = {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&answered, signal);
  }
  // Ignored, it would take the ends of children away from those who wait for them.
  std::signal(SIGCHLD, SIG_DFL);
  sigaddset(&answered, SIGCHLD);
  sigset_t held = answered;
  sigaddset(&held, SIGPIPE);
  sigaddset(&held, SIGTTOU);
  ::sigprocmask(SIG_BLOCK, &held, &before_);
  descriptor_ = ::signalfd(-1, &answered, SFD_CLOEXEC | SFD_NONBLOCK);
  if (descriptor_ < 0) {
    throw Error(ErrorKind::kResource, fmt::format("signalfd: {}", std::strerror(errno)));
  }
}

Signals::~Signals() {
  // A write to a closed pipe has been noticed: it shall not end the process now.
  const timespec now{};
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  ::sigtimedwait(&pipe, nullptr, &now);
  ::close(descriptor_);
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<ReceivedSignal> Signals::next() const {
  signalfd_siginfo info{};
  if (::read(descriptor_, &info, sizeof info) != sizeof info) return std::nullopt;
  return ReceivedSignal{static_cast<int>(info.ssi_signo), info.ssi_code == SI_KERNEL};
}

}  // namespace haul::core
