#pragma once

// The signals that a launcher answers, as a descriptor to wait for instead of interruptions.

#include <csignal>
#include <optional>

namespace haul::core {

struct ReceivedSignal {
  int number = 0;
  bool from_terminal = false;  // a key: the whole foreground process group got it

  bool asks_to_end() const { return number != SIGTSTP && number != SIGCHLD; }
};

// Holds back SIGINT, SIGTERM, SIGHUP and SIGTSTP, but for those that were ignored already (nohup),
// SIGCHLD, and what writing to a closed pipe or from the background would do. Ends with the object.
// One thread.
class Signals {
 public:
  Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals();

  int descriptor() const { return descriptor_; }
  std::optional<ReceivedSignal> next() const;
  const sigset_t& mask_before() const { return before_; }

 private:
  int descriptor_ = -1;
  sigset_t before_{};
};

}  // namespace haul::core
