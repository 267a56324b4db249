#include "cli/torch/interrupt.h"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>

namespace haul::cli {
namespace {

std::atomic<bool> came{false};
pthread_t waits;  // the thread that waits for input

// Any thread may be the one that the system tells.
void on_interrupt(int signal) {
  if (::pthread_equal(::pthread_self(), waits) == 0) {
    ::pthread_kill(waits, signal);
  } else if (came.exchange(true)) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

}  // namespace

const std::atomic<bool>& interrupted() {
  return came;
}

void catch_interrupt() {
  came = false;
  waits = ::pthread_self();
  struct sigaction action = {};
  action.sa_handler = on_interrupt;  // without SA_RESTART, so that reads end, too
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
}

bool wait_for_line() {
  // Held back until the wait has begun, so that none falls between looking and waiting.
  sigset_t interrupt;
  sigset_t before;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &interrupt, &before);
  sigset_t open = before;
  sigdelset(&open, SIGINT);
  pollfd input{STDIN_FILENO, POLLIN, 0};
  while (!came && ::ppoll(&input, 1, nullptr, &open) < 0 && errno == EINTR) {
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return !came;
}

void end_if_interrupted() {
  if (!came) return;
  std::fflush(nullptr);
  std::signal(SIGINT, SIG_DFL);
  std::raise(SIGINT);
}

}  // namespace haul::cli
