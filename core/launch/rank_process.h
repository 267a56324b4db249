#pragma once

// One process of a launch, which dies with the launcher. For a process with one thread.

#include <sys/types.h>

#include <csignal>
#include <string>
#include <vector>

namespace haul::core {

class Guard;

struct ProcessStart {
  std::vector<std::string> command;      // looked for in PATH where it has no slash
  std::vector<std::string> environment;  // "NAME=value", all of it
  std::vector<int> cpus;                 // to run on; empty: any
  int in = 0;
  int out = 1;
  int err = 2;
  bool own_group = true;         // leads a process group of its own
  const Guard* guard = nullptr;  // is told of that group before the program runs
  sigset_t signal_mask{};
};

// Its number. Throws Error(kNotFound) when there is no such program, Error(kUnsupported) for a file
// that is none, Error(kResource) for any other reason that the system gives.
pid_t start_process(const ProcessStart& start);

// "exit code 3", "signal 9 (Killed)"; and what a shell makes of it: 3, 137.
struct ProcessEnd {
  int exit_code = 0;
  int signal = 0;  // 0: it ended by itself

  bool failed() const { return exit_code != 0 || signal != 0; }
  int shell_code() const { return signal != 0 ? 128 + signal : exit_code; }
  std::string text() const;
};

// A process that ends all process groups that it was told of when this one dies, even by a kill
// that nothing can catch. Forgets them in its destructor.
class Guard {
 public:
  Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard();

  void add(pid_t group) const;
  void forget() const;  // all
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int pipe_ = -1;
};

// Collects the orphans that have ended, but for `kept`, which are children. This process must be a
// subreaper.
void collect_orphans(const std::vector<pid_t>& kept);

// Ends every descendant that is left, but for `spared`, which is a child. This process must be a
// subreaper, so that the orphans among them are its children. Collects all that end.
void end_descendants(pid_t spared);

}  // namespace haul::core
