#include "cli/torch/interrupt.h"

#include <pthread.h>

#include <csignal>
#include <cstdio>

namespace haul::cli {
namespace {

std::atomic<bool> came{false};
pthread_t waits;  // the thread whose reads are to end

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
  action.sa_handler = on_interrupt;  // without SA_RESTART, so that reads end
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
}

void end_if_interrupted() {
  if (!came) return;
  std::fflush(nullptr);
  std::signal(SIGINT, SIG_DFL);
  std::raise(SIGINT);
}

}  // namespace haul::cli
