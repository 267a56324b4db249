#pragma once

// Starts the ranks of a plan on this machine and stays with them to their end. What happens:
//  - SIGINT, SIGTERM and SIGHUP go to the process group of every rank; a second one, or the end of
//    the grace time, kills them.
//  - The first rank that fails ends the others: SIGTERM at once, SIGKILL after the grace time. Its
//    number, its end and its last lines go to stderr.
//  - On several machines the launchers wait for each other, and a failure on one ends the ranks on
//    all.
//  - When all have ended, nothing that they started is left. A rank does not outlive a launcher
//    that is killed.
// For the main thread of a process with no other: the signal mask, SIGPIPE and the reaping of
// children are the launcher's from then on.

#include <chrono>
#include <filesystem>
#include <optional>

#include "core/launch/launch_plan.h"

namespace haul::core {

struct LaunchOptions {
  int max_restarts = 0;
  // A folder of this run is made there, with attempt_N/RANK/stdout.log and stderr.log. The terminal
  // then shows what `tee` asks for alone.
  std::optional<std::filesystem::path> log_dir;
  bool tee_stdout = false;
  bool tee_stderr = false;
  bool prefix = false;  // "[rank 1] " before each line
  std::chrono::milliseconds grace{15000};
  std::chrono::milliseconds machine_timeout{300'000};  // for the other machines to come
};

struct LaunchEnd {
  int exit_code = 0;  // of the first rank that failed, 128 + N where signal N ended it
  int signal = 0;     // that the launcher was asked to end by; 0: none
};

// Throws Error when the ranks cannot be started, after those that were have ended: kNotFound when
// there is no such program, kUnsupported for a file that is none, kResource otherwise.
LaunchEnd launch(const LaunchPlan& plan, const LaunchOptions& options);

}  // namespace haul::core
