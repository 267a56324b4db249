#pragma once

// The launchers of a job on several machines. They wait for each other before their ranks start, so
// that a machine that does not come is named; one tells the others when a rank of its own fails,
// and all learn how the whole job ended. Machine 0 listens at the job's port until all have come
// and leaves it to rank 0 then; the connections stay. On one machine nothing of this happens. One
// thread.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "core/launch/launch_plan.h"
#include "core/launch/signals.h"

namespace haul::core {

// How the job failed elsewhere.
struct RemoteFailure {
  std::string text;  // "machine 1: rank 3 (pid 77) ended with signal 9 (Killed)"
  int exit_code = 1;
  bool restarts = true;  // false: that launcher has ended
};

class Machines {
 public:
  Machines(const LaunchPlan& plan, const Signals& signals, std::chrono::milliseconds timeout);
  Machines(const Machines&) = delete;
  Machines& operator=(const Machines&) = delete;
  ~Machines();

  // Until all machines have come to this attempt. Returns the number of a signal that came instead,
  // 0 for none. Throws Error(kResource) that names the machines which have not come in time, or the
  // reason why they cannot be reached.
  int meet(int attempt);

  // Tells the others of a failure on this machine.
  void tell(const RemoteFailure& failure) const;

  // To wait for, and then to read. What comes back is a failure on another machine.
  std::vector<int> descriptors() const;
  std::optional<RemoteFailure> read();

  // When all ranks of this machine have ended well: until those of the others have, too. Returns a
  // signal as meet() does.
  int wait_for_the_others(std::optional<RemoteFailure>* failure);

 private:
  using Clock = std::chrono::steady_clock;

  struct Peer {
    int descriptor = -1;
    int machine = -1;  // -1: has not said yet
    std::string text;  // read, not yet understood
    int ready = -1;    // the attempt that it has come to
    int done = -1;     // the attempt that ended well there
  };

  bool is_main() const { return plan_.machine_rank == 0; }
  void listen();
  void connect(Clock::time_point end);
  int try_connect(Clock::time_point end);
  bool wait(Clock::time_point end, int descriptor, short events);
  void accept();
  void leave_a_stranger(Clock::time_point end);
  void check_all_are_there() const;
  void take_lines(Peer& peer);
  void understand(Peer& peer, const std::string& line);
  void hear_hello(Peer& peer, const std::string& line) const;
  void fail_from(const Peer& peer, RemoteFailure failure);
  std::size_t count(int Peer::*what) const;  // of those that have come to this attempt
  std::string missing() const;

  const LaunchPlan& plan_;
  const Signals& signals_;
  std::chrono::milliseconds timeout_;
  int listener_ = -1;
  int attempt_ = -1;
  int signal_ = 0;
  int go_ = -1;  // attempts that machine 0 has begun and seen end well everywhere
  int end_ = -1;
  std::vector<Peer> peers_;
  std::optional<RemoteFailure> failure_;
};

}  // namespace haul::core
