#include "cli/torch/interrupt.h"

#include <csignal>
#include <cstdio>

namespace haul::cli {
namespace {

std::atomic<bool> came{false};

void on_interrupt(int) {
  came = true;
}

}  // namespace

const std::atomic<bool>& interrupted() {
  return came;
}

void catch_interrupt() {
  came = false;
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // and no SA_RESTART: reads end
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
