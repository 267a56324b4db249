#pragma once

// One run of all ranks of this machine, from their start to the end of the last. One thread.

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/launch/launch_plan.h"
#include "core/launch/launcher.h"
#include "core/launch/machines.h"
#include "core/launch/rank_output.h"
#include "core/launch/rank_process.h"
#include "core/launch/signals.h"

namespace haul::core {

// What the attempts of a launch share.
struct LaunchContext {
  LaunchContext(const LaunchPlan& the_plan, const LaunchOptions& the_options,
                const Signals& the_signals, const Guard& the_guard)
      : plan(the_plan),
        options(the_options),
        signals(the_signals),
        guard(the_guard),
        machines(the_plan, the_signals, the_options.machine_timeout) {}

  const LaunchPlan& plan;
  const LaunchOptions& options;
  const Signals& signals;
  const Guard& guard;
  Machines machines;
  Sink out{1};
  Sink err{2};
  std::filesystem::path logs;           // of this run; empty: none
  std::vector<std::vector<int>> cores;  // of each rank; empty: any

  void say(const std::string& message);  // a line on stderr
};

class Attempt {
 public:
  Attempt(LaunchContext& context, int number, int port);
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;
  ~Attempt();  // no rank is left

  struct End {
    int exit_code = 0;      // of the first rank that failed
    bool restarts = false;  // it may be tried again
    int signal = 0;         // that asked for the end
  };
  // Throws Error when a rank cannot be started.
  End run();

 private:
  struct Rank {
    int number = 0;  // among all
    pid_t pid = 0;
    int descriptor = -1;  // readable at its end; -1 after it
    std::optional<ProcessEnd> end;
    std::string error_log;
    std::size_t error_stream = 0;  // in streams_, from 1; 0: none

    std::string name() const;
  };

  void start(int local_rank);
  int open_log(int rank, const char* name, std::string* path) const;
  int output(int standard, bool tee, bool pipe, Rank& rank);
  void wait();
  void collect(Rank& rank);
  void choose_failure();
  void hear_machines();
  void on_signal(const ReceivedSignal& signal);
  void pause();
  void send(const Rank& rank, int signal) const;
  void stop(int signal);
  void kill_all(const char* why);
  void finish();
  void report();
  std::size_t living() const;

  LaunchContext& context_;
  int number_;
  int port_;
  bool own_groups_ = true;
  std::vector<Rank> ranks_;
  std::vector<RankStream> streams_;
  std::vector<int> to_close_;  // the ranks' ends of pipes and logs
  const Rank* failed_ = nullptr;
  std::optional<RemoteFailure> failed_elsewhere_;
  int signal_ = 0;
  bool stopping_ = false;
  bool killed_ = false;
  bool finished_ = false;
  std::chrono::steady_clock::time_point deadline_;
};

}  // namespace haul::core
