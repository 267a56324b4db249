#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/launch/ports.h"
#include "tests/support/live_process.h"
#include "tests/support/run_process.h"
#include "tests/support/temporary_folder.h"

namespace haul::cli {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::UnorderedElementsAre;

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> result;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) result.push_back(line);
  return result;
}

bool is_alive(pid_t pid) {
  if (::kill(pid, 0) != 0) return false;
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(stat, text);
  const std::size_t state = text.rfind(") ");
  return state != text.npos && text[state + 2] != 'Z';
}

class Launch : public testing::Test {
 protected:
  std::vector<std::string> command(std::vector<std::string> flags,
                                   const std::string& script) const {
    flags.insert(flags.begin(), {HAUL_COMMAND, "launch"});
    flags.insert(flags.end(), {"sh", "-c", script});
    return flags;
  }
  test::Finished run(const std::vector<std::string>& flags, const std::string& script) const {
    return test::run_process(command(flags, script), environment());
  }
  std::map<std::string, std::string> environment() const {
    return {{"HF_HOME", folder_.path().string()}};
  }
  static std::vector<std::string> processes(int count) {
    return {"--num_processes", std::to_string(count)};
  }

  test::TemporaryFolder folder_;
};

TEST_F(Launch, GivesEachRankItsEnvironment) {
  for (const int world : {1, 2, 3, 8}) {
    const auto done = run(processes(world),
                          "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK "
                          "$GROUP_WORLD_SIZE $MASTER_ADDR $TORCHELASTIC_RESTART_COUNT "
                          "$TORCHELASTIC_MAX_RESTARTS $ACCELERATE_MIXED_PRECISION "
                          "$ACCELERATE_USE_CPU $OMP_NUM_THREADS ${MASTER_PORT:+port}");
    EXPECT_EQ(done.exit_code, 0) << done.err;
    std::vector<std::string> expected;
    const std::string n = std::to_string(world);
    for (int rank = 0; rank < world; ++rank) {
      const std::string r = std::to_string(rank);
      expected.push_back(r + " " + r + " " + n + " " + n + " 0 1 127.0.0.1 0 0 no False 1 port");
    }
    EXPECT_THAT(lines(done.out), testing::UnorderedElementsAreArray(expected));
  }
}

TEST_F(Launch, HandsFlagsToTheProgramAsTheyWereWritten) {
  const auto done = test::run_haul({"launch", "--num-processes=1", "sh", "-c", "echo $0 $@", "a_b",
                                    "--c_d=e_f", "--", "--num_processes", "3"},
                                   environment());
  EXPECT_EQ(done.out, "a_b --c_d=e_f -- --num_processes 3\n");
  EXPECT_EQ(test::run_haul({"launch", "--", "sh", "-c", "echo $0", "--x_y"}, environment()).out,
            "--x_y\n");
}

TEST_F(Launch, EndsWithTheCodeOfTheRankThatFailedAndItsLastLines) {
  const auto done =
      run(processes(3), "[ $RANK = 1 ] || exec sleep 1000; echo its reason >&2; exit 3");
  EXPECT_EQ(done.exit_code, 3);
  EXPECT_THAT(done.err, testing::ContainsRegex("rank 1 \\(pid [0-9]+\\) ended with exit code 3"));
  EXPECT_THAT(done.err, HasSubstr("the last lines of rank 1:\n  | its reason\n"));
}

TEST_F(Launch, EndsWith128AndTheSignalThatKilledARank) {
  const auto done = run(processes(3), "[ $RANK = 2 ] || exec sleep 1000; kill -9 $$");
  EXPECT_EQ(done.exit_code, 137);
  EXPECT_THAT(done.err,
              testing::ContainsRegex("rank 2 \\(pid [0-9]+\\) ended with signal 9 \\(Killed\\)"));
}

TEST_F(Launch, KillsRanksThatIgnoreTheRequestToEnd) {
  const std::string deaf = (folder_.path() / "deaf").string();  // the ranks that no longer hear
  const auto done = run({"--num_processes", "3", "--grace", "0.2"},
                        "if [ $RANK = 0 ]; then until [ -e " + deaf + "1 ] && [ -e " + deaf +
                            "2 ]; do sleep 0.01; done; exit 5; fi; trap '' TERM; : >" + deaf +
                            "$RANK; while :; do sleep 1000; done");
  EXPECT_EQ(done.exit_code, 5);
  EXPECT_THAT(done.err, testing::ContainsRegex("rank 1 \\(pid [0-9]+\\) did not end in time"));
}

// One child in the rank's process group and one that left it, when a rank fails and when none does.
TEST_F(Launch, LeavesNothingThatARankStarted) {
  for (const int code : {0, 1}) {
    const std::string fifo = folder_.path() / ("fifo" + std::to_string(code));
    const auto done =
        run(processes(2), "[ $RANK = 0 ] || exit 0; sleep 1000 & a=$!; mkfifo " + fifo +
                              "; setsid sh -c 'echo $$ >" + fifo + "; exec sleep 1000' & read b <" +
                              fifo + "; echo $a $b; exit " + std::to_string(code));
    EXPECT_EQ(done.exit_code, code) << done.err;
    std::istringstream pids(done.out);
    pid_t in_group = 0;
    pid_t escaped = 0;
    ASSERT_TRUE(pids >> in_group >> escaped) << done.out;
    EXPECT_FALSE(is_alive(in_group));
    EXPECT_FALSE(is_alive(escaped));
  }
}

TEST_F(Launch, CollectsWhatARankLeftBehindWhileItRuns) {
  test::LiveProcess live(
      command(processes(2),
              "[ $RANK = 0 ] || exec sleep 1000; "
              "for i in 1 2 3; do sh -c 'sleep 0 & echo $!'; done; read x; exit 9"),
      environment());
  std::vector<pid_t> orphans;
  for (int i = 0; i < 3; ++i) orphans.push_back(std::stoi(live.line()));
  for (const pid_t pid : orphans) {
    // One that nobody collects stays.
    for (int i = 0; i < 60'000 && ::kill(pid, 0) == 0; ++i) ::usleep(1000);
    EXPECT_NE(::kill(pid, 0), 0);
  }
  live.write("go\n");
  EXPECT_EQ(live.wait().exit_code, 9);
}

TEST_F(Launch, WorksForACallerThatIgnoresTheEndOfChildren) {
  std::signal(SIGCHLD, SIG_IGN);
  test::LiveProcess live(command(processes(2), "exit $((3 + RANK * 0))"), environment());
  std::signal(SIGCHLD, SIG_DFL);
  EXPECT_EQ(live.wait().exit_code, 3);
}

TEST_F(Launch, LeavesNothingWhenItIsKilledItself) {
  test::LiveProcess live(command(processes(2), "sleep 1000 & echo $$ $!; exec sleep 1000"),
                         environment());
  std::vector<pollfd> ends;  // of the ranks and their children
  for (int i = 0; i < 2; ++i) {
    std::istringstream line(live.line());
    for (pid_t pid = 0; line >> pid;) {
      ends.push_back({static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)), POLLIN, 0});
      ASSERT_GE(ends.back().fd, 0);
    }
  }
  live.send(SIGKILL);
  EXPECT_EQ(live.wait().exit_code, 137);
  ASSERT_EQ(ends.size(), 4U);
  for (pollfd& end : ends) {
    EXPECT_EQ(::poll(&end, 1, 60'000), 1);
    ::close(end.fd);
  }
}

TEST_F(Launch, PassesSignalsOnToAllRanks) {
  for (const auto& [signal, name] :
       {std::pair{SIGINT, "INT"}, {SIGTERM, "TERM"}, {SIGHUP, "HUP"}}) {
    // A shell's child would begin with SIGINT ignored: the wait is for a pipe that nobody writes
    // to.
    test::LiveProcess live(
        command(processes(3), std::string("trap 'echo got $RANK; exit 0' ") + name +
                                  "; echo ready; while :; do sleep 0.05; done"),
        environment());
    for (int i = 0; i < 3; ++i) EXPECT_EQ(live.line(), "ready");
    live.send(signal);
    const auto done = live.wait();
    EXPECT_THAT(lines(done.out), UnorderedElementsAre("got 0", "got 1", "got 2"));
    EXPECT_EQ(done.exit_code, 128 + signal);
  }
}

TEST_F(Launch, KillsAtTheSecondSignal) {
  test::LiveProcess live(
      command(processes(2), "trap 'echo no' TERM; echo ready; while :; do sleep 0.05; done"),
      environment());
  for (int i = 0; i < 2; ++i) EXPECT_EQ(live.line(), "ready");
  live.send(SIGTERM);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(live.line(), "no");
  live.send(SIGTERM);
  const auto done = live.wait();
  EXPECT_EQ(done.exit_code, 143);
  EXPECT_THAT(done.err, HasSubstr("is killed by a second signal"));
}

TEST_F(Launch, GivesItsInputToRankZero) {
  test::LiveProcess live(command(processes(2), "read x; echo $RANK:$x"), environment());
  live.write("hello\n");
  const auto done = live.wait();
  EXPECT_THAT(lines(done.out), UnorderedElementsAre("0:hello", "1:"));
}

TEST_F(Launch, TakesAnotherPortWhenItsIsInUse) {
  const int port = core::free_port();
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  const std::string number = std::to_string(port);
  auto done = run({"--num_processes", "1", "--main_process_port", number}, "echo $MASTER_PORT");
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_THAT(done.err, HasSubstr("port " + number + " is in use; taking"));
  EXPECT_THAT(done.out, Not(HasSubstr(number)));
  done = run({"--num_processes", "2", "--num_machines", "2", "--machine_rank", "0",
              "--main_process_ip", "127.0.0.1", "--main_process_port", number},
             "echo started");
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_THAT(done.err, HasSubstr("port " + number + " is in use"));
  EXPECT_EQ(done.out, "");
  ::close(listener);
  done = run({"--num_processes", "1", "--main_process_port", number}, "echo $MASTER_PORT");
  EXPECT_EQ(done.out, number + "\n");
}

TEST_F(Launch, RestartsAllRanksAfterAFailure) {
  const std::string script =
      "echo $RANK:$TORCHELASTIC_RESTART_COUNT/$TORCHELASTIC_MAX_RESTARTS; "
      "[ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT -lt 2 ] && exit 4; exit 0";
  auto done = run({"--num_processes", "2", "--max_restarts", "3"}, script);
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("0:2/3\n"));
  EXPECT_THAT(done.out, HasSubstr("1:2/3\n"));
  EXPECT_THAT(done.out, Not(HasSubstr(":3/3")));
  EXPECT_THAT(done.err, HasSubstr("restart 2 of 3"));
  done = run({"--num_processes", "2", "--max_restarts", "1"}, script);
  EXPECT_EQ(done.exit_code, 4);
}

TEST_F(Launch, WritesALogForEachRankAndAttempt) {
  const auto logs = folder_.path() / "logs";
  const auto done = run({"--num_processes", "2", "--max_restarts", "1", "--log_dir", logs},
                        "echo out $RANK; echo err $RANK >&2; [ $RANK = 0 ]");
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_EQ(done.out, "");
  EXPECT_THAT(done.err, HasSubstr("the last lines of rank 1:\n  | err 1\n"));
  EXPECT_THAT(done.err, Not(HasSubstr("err 0")));
  std::vector<std::string> runs;
  for (const auto& entry : std::filesystem::directory_iterator(logs)) runs.push_back(entry.path());
  ASSERT_EQ(runs.size(), 1U);
  for (const char* file : {"attempt_0/1/stdout.log", "attempt_1/1/stdout.log"}) {
    std::ifstream log(runs[0] + "/" + file);
    std::string line;
    EXPECT_TRUE(std::getline(log, line)) << file;
    EXPECT_EQ(line, "out 1");
  }
  EXPECT_TRUE(std::filesystem::exists(runs[0] + "/attempt_1/0/stderr.log"));
}

TEST_F(Launch, ShowsOnTheTerminalWhatTeeAsksFor) {
  const auto logs = folder_.path() / "logs";
  const std::string script = "echo out $RANK; echo err $RANK >&2";
  auto done = run({"--num_processes", "2", "--log_dir", logs, "--tee", "1"}, script);
  EXPECT_THAT(lines(done.out), UnorderedElementsAre("out 0", "out 1"));
  EXPECT_THAT(done.err, Not(HasSubstr("err 0")));
  done = run({"--num_processes", "2", "--log_dir", logs, "-t", "3", "--prefix"}, script);
  EXPECT_THAT(lines(done.out), UnorderedElementsAre("[rank 0] out 0", "[rank 1] out 1"));
  EXPECT_THAT(done.err, HasSubstr("[rank 1] err 1\n"));
  EXPECT_EQ(run({"--tee", "3"}, script).exit_code, 2);
}

TEST_F(Launch, NamesAProgramThatIsNotThere) {
  auto done = test::run_haul({"launch", "no-such-program"}, environment());
  EXPECT_EQ(done.exit_code, 127);
  EXPECT_THAT(done.err, HasSubstr("haul: error: cannot start 'no-such-program'"));
  done = test::run_haul({"launch", folder_.path() / "gone.py"}, environment());
  EXPECT_EQ(done.exit_code, 127);
  EXPECT_THAT(done.err, HasSubstr("gone.py"));
  done = test::run_haul({"launch", folder_.write("data", "text")}, environment());
  EXPECT_EQ(done.exit_code, 126);
}

TEST_F(Launch, RefusesFlagsThatItDoesNotKnowAndAbbreviations) {
  for (const char* flag : {"--num_proc", "--frobnicate"}) {
    const auto done = run({flag, "2"}, "echo no");
    EXPECT_EQ(done.exit_code, 2);
    EXPECT_THAT(done.err, HasSubstr(flag));
    EXPECT_EQ(done.out, "");
  }
}

TEST_F(Launch, ReadsTheConfigUnlessAFlagSaysOtherwise) {
  folder_.write("accelerate/default_config.yaml",
                "distributed_type: MULTI_CPU\nnum_processes: 2\nmixed_precision: bf16\n");
  const std::string script = "echo $WORLD_SIZE $ACCELERATE_MIXED_PRECISION";
  EXPECT_EQ(run({}, script).out, "2 bf16\n2 bf16\n");
  EXPECT_EQ(run({"--num_processes", "1", "--mixed_precision", "fp16"}, script).out, "1 fp16\n");
  EXPECT_EQ(run({"--cpu", "--num_processes", "1"}, script).out, "1 no\n");
  const auto other = folder_.write("other.yaml", "distributed_type: 'NO'\nzebra: 1\n");
  const auto done = run({"--config_file", other}, script);
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_THAT(done.err, HasSubstr("other.yaml: unknown keys: 'zebra'"));
}

TEST_F(Launch, PinsEachRankToCoresOfItsOwn) {
  const auto done = run({"--num_processes", "2", "--enable_cpu_affinity"},
                        "sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status");
  ASSERT_EQ(lines(done.out).size(), 2U);
  if (::sysconf(_SC_NPROCESSORS_ONLN) > 1) {
    EXPECT_NE(lines(done.out)[0], lines(done.out)[1]);
  }
}

// Two launchers on loopback stand for two machines.
class LaunchMachines : public Launch {
 protected:
  std::vector<std::string> machine(int rank, const std::string& script,
                                   const std::vector<std::string>& more = {},
                                   const char* processes = "4") const {
    std::vector<std::string> flags{"--num_processes",     processes,
                                   "--num_machines",      "2",
                                   "--machine_rank",      std::to_string(rank),
                                   "--main_process_ip",   "127.0.0.1",
                                   "--main_process_port", std::to_string(port_)};
    flags.insert(flags.end(), more.begin(), more.end());
    return command(flags, script);
  }

  int port_ = core::free_port();
};

TEST_F(LaunchMachines, NumberTheirRanksAsOneJob) {
  const std::string script =
      "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR:$MASTER_PORT";
  test::LiveProcess second(machine(1, script), environment());
  test::LiveProcess first(machine(0, script), environment());
  const std::string master = " 127.0.0.1:" + std::to_string(port_);
  const auto done = first.wait();
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(lines(done.out), UnorderedElementsAre("0 0 4 2 0" + master, "1 1 4 2 0" + master));
  EXPECT_THAT(lines(second.wait().out),
              UnorderedElementsAre("2 0 4 2 1" + master, "3 1 4 2 1" + master));
}

TEST_F(LaunchMachines, LeaveThePortToRankZero) {
  const auto flags = [&](int rank) {
    std::vector<std::string> all = machine(rank, "");
    all.resize(all.size() - 3);
    all.emplace_back(HAUL_LAUNCH_PROBE);
    return all;
  };
  test::LiveProcess first(flags(0), environment());
  test::LiveProcess second(flags(1), environment());
  for (int ready = 0; ready < 2;) {
    const std::string line = first.line();
    ready += line.starts_with("ready") ? 1 : 0;
  }
  second.send(SIGTERM);
  EXPECT_EQ(second.wait().exit_code, 143);
  const auto done = first.wait();
  EXPECT_EQ(done.exit_code, 143);
  EXPECT_THAT(done.err, HasSubstr("machine 1: ended by signal 15; stopping 2 here"));
  EXPECT_TRUE(core::port_is_free(port_));
}

TEST_F(LaunchMachines, EndTogetherWhenARankFailsOnOne) {
  test::LiveProcess first(machine(0, "exec sleep 1000"), environment());
  test::LiveProcess second(machine(1, "[ $RANK = 3 ] && exit 7; exec sleep 1000"), environment());
  const auto done = first.wait();
  EXPECT_EQ(done.exit_code, 7);
  EXPECT_THAT(done.err,
              testing::ContainsRegex("machine 1: rank 3 \\(pid [0-9]+\\) ended with exit code 7"));
  EXPECT_EQ(second.wait().exit_code, 7);
}

TEST_F(LaunchMachines, LearnOfAFailureAfterTheirOwnRanksHaveEnded) {
  const std::string fifo = folder_.path() / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  test::LiveProcess first(machine(0, "echo bye"), environment());
  test::LiveProcess second(machine(1, "[ $RANK = 3 ] || exit 0; read x <" + fifo + "; exit 7"),
                           environment());
  for (int i = 0; i < 2; ++i) EXPECT_EQ(first.line(), "bye");
  std::ofstream(fifo) << "now\n";
  EXPECT_EQ(second.wait().exit_code, 7);
  EXPECT_EQ(first.wait().exit_code, 7);
}

TEST_F(LaunchMachines, RestartTogether) {
  const std::vector<std::string> restarts{"--max_restarts", "1"};
  const std::string script =
      "echo $RANK:$TORCHELASTIC_RESTART_COUNT; "
      "[ $RANK = 3 ] && [ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 7; exit 0";
  test::LiveProcess first(machine(0, script, restarts), environment());
  test::LiveProcess second(machine(1, script, restarts), environment());
  const auto done = first.wait();
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("0:1\n"));
  EXPECT_THAT(done.out, HasSubstr("1:1\n"));
  EXPECT_EQ(second.wait().exit_code, 0);
}

TEST_F(LaunchMachines, NameTheOneThatDoesNotCome) {
  const std::vector<std::string> hurry{"--machine_timeout", "0.3"};
  auto done = test::run_process(machine(0, "echo no", hurry), environment());
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_THAT(done.err, HasSubstr("machine 1 did not come within"));
  EXPECT_EQ(done.out, "");
  done = test::run_process(machine(1, "echo no", hurry), environment());
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_THAT(done.err,
              HasSubstr("machine 0 at 127.0.0.1:" + std::to_string(port_) + " did not answer"));
}

// Someone else had the port until just now.
TEST_F(LaunchMachines, TryAgainWhereAStrangerAnswered) {
  const int stranger = core::listen_at(port_, 1);
  ASSERT_GE(stranger, 0);
  test::LiveProcess second(machine(1, "echo $RANK"), environment());
  for (int time = 0; time < 2; ++time) {
    const int caller = ::accept(stranger, nullptr, nullptr);
    ASSERT_GE(caller, 0);
    std::array<char, 256> hello{};
    EXPECT_GT(::read(caller, hello.data(), hello.size()), 0);
    const std::string_view answer = "HTTP/1.1 400 Bad Request\r\n\r\n";
    EXPECT_EQ(::write(caller, answer.data(), answer.size()), std::ssize(answer));
    ::close(caller);
  }
  ::close(stranger);
  test::LiveProcess first(machine(0, "echo $RANK"), environment());
  const auto done = second.wait();
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(lines(done.out), UnorderedElementsAre("2", "3"));
  EXPECT_EQ(first.wait().exit_code, 0);
}

TEST_F(LaunchMachines, NoticeALauncherThatIsKilled) {
  test::LiveProcess first(machine(0, "echo up; exec sleep 1000"), environment());
  test::LiveProcess second(machine(1, "echo up; exec sleep 1000"), environment());
  for (int i = 0; i < 2; ++i) EXPECT_EQ(first.line(), "up");
  second.send(SIGKILL);
  const auto done = first.wait();
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_THAT(done.err, HasSubstr("the launcher of machine 1 is gone"));
}

TEST_F(LaunchMachines, DoNotWaitForALauncherThatIsGoneWhenTheyRestart) {
  const std::vector<std::string> restarts{"--max_restarts", "5"};
  test::LiveProcess first(machine(0, "echo up; exec sleep 1000", restarts), environment());
  test::LiveProcess second(machine(1, "[ $RANK = 3 ] && exit 7; exec sleep 1000"), environment());
  EXPECT_EQ(second.wait().exit_code, 7);
  const auto done = first.wait();
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_THAT(done.err, HasSubstr("the launcher of machine 1 is gone"));
}

TEST_F(LaunchMachines, AgreeWhenOneFailsAtOnceAgainAndAgain) {
  const std::vector<std::string> restarts{"--max_restarts", "10"};
  test::LiveProcess first(machine(0, "exec sleep 1000", restarts), environment());
  test::LiveProcess second(machine(1, "exit 7", restarts), environment());
  EXPECT_EQ(second.wait().exit_code, 7);
  EXPECT_EQ(first.wait().exit_code, 7);
}

TEST_F(LaunchMachines, RefuseAMachineOfAnotherJob) {
  test::LiveProcess first(machine(0, "true", {"--machine_timeout", "1"}), environment());
  test::LiveProcess second(machine(1, "true", {}, "6"), environment());
  const auto done = second.wait();
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_THAT(done.err, HasSubstr("6 processes on 2 machines there, 4 on 2 here"));
  EXPECT_EQ(first.wait().exit_code, 1);
}

// A random rank of a job over TCP dies at a random time, while the others wait for it.
TEST_F(Launch, EndsEveryTimeARankDies) {
#ifdef __SANITIZE_ADDRESS__
  constexpr int kLaunches = 40;  // each starts ten times as slowly
#else
  constexpr int kLaunches = 200;
#endif
  constexpr int kWorld = 3;
  std::mt19937 random(7);
  for (int i = 0; i < kLaunches; ++i) {
    const int victim = static_cast<int>(random() % kWorld);
    const bool early = random() % 2 == 0;
    test::LiveProcess live(
        {HAUL_COMMAND, "launch", "--num_processes", std::to_string(kWorld), HAUL_LAUNCH_PROBE},
        environment());
    std::vector<pid_t> pids(kWorld, 0);
    int port = 0;
    for (int ready = 0;
         ready < (early ? 0 : kWorld) || pids[static_cast<std::size_t>(victim)] == 0;) {
      std::istringstream line(live.line());
      std::string word;
      std::size_t rank = 0;
      line >> word >> rank;
      line >> pids.at(rank) >> port;
      ready += word == "ready" ? 1 : 0;
    }
    ::usleep(static_cast<useconds_t>(random() % 3000));
    ::kill(pids[static_cast<std::size_t>(victim)], SIGKILL);
    const auto done = live.wait();
    ASSERT_EQ(done.exit_code, 137) << "launch " << i << ": " << done.err;
    ASSERT_THAT(done.err, HasSubstr("rank " + std::to_string(victim) + " (pid "));
    for (const pid_t pid : pids) ASSERT_FALSE(pid != 0 && is_alive(pid)) << "launch " << i;
    if (port != 0) {
      ASSERT_TRUE(core::port_is_free(port)) << "launch " << i;
    }
  }
}

}  // namespace
}  // namespace haul::cli
