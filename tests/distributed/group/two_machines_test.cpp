// A job of two machines, each with its launcher.

#include "tests/support/two_machines.h"

#include <chrono>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/launch/ports.h"
#include "distributed/group/own_address.h"
#include "tests/support/live_process.h"
#include "tests/support/temporary_folder.h"

namespace haul {
namespace {

using test::Finished;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class MachinesInTwo : public ::testing::Test {
 protected:
  std::vector<std::string> launch(int machine, const std::vector<std::string>& program,
                                  const std::vector<std::string>& more = {}) const {
    std::vector<std::string> command{HAUL_COMMAND,
                                     "launch",
                                     "--cpu",
                                     "--num_processes",
                                     "4",
                                     "--num_machines",
                                     "2",
                                     "--machine_rank",
                                     std::to_string(machine),
                                     "--main_process_ip",
                                     machines_.address(0),
                                     "--main_process_port",
                                     std::to_string(port_)};
    command.insert(command.end(), more.begin(), more.end());
    command.insert(command.end(), program.begin(), program.end());
    return machines_.on(machine, command);
  }
  std::map<std::string, std::string> environment() const {
    return {{"HF_HOME", folder_.path().string()}};
  }
  static std::vector<std::string> lines(const std::string& text) {
    std::vector<std::string> result;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) result.push_back(line);
    return result;
  }

  test::TemporaryFolder folder_;
  test::TwoMachines machines_;
  int port_ = core::free_port();
};

TEST_F(MachinesInTwo, NumberTheirRanksAsOneJob) {
  const std::vector<std::string> program{
      "sh", "-c",
      "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK "
      "$MASTER_ADDR:$MASTER_PORT"};
  test::LiveProcess first(launch(0, program), environment());
  test::LiveProcess second(launch(1, program), environment());
  const std::string main = " " + machines_.address(0) + ":" + std::to_string(port_);
  const Finished done = first.wait();
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(lines(done.out), UnorderedElementsAre("0 0 4 2 0" + main, "1 1 4 2 0" + main));
  const Finished other = second.wait();
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_THAT(lines(other.out), UnorderedElementsAre("2 0 4 2 1" + main, "3 1 4 2 1" + main));
}

TEST_F(MachinesInTwo, HaveCollectivesOverBoth) {
  // Each of the four looks at what it gathers from, sums over and splits among all.
  const std::vector<std::string> program{HAUL_COMMAND, "test", "--cpu"};
  test::LiveProcess first(launch(0, program), environment());
  test::LiveProcess second(launch(1, program), environment());
  const std::string all = "4 processes, 2 on this machine, gloo on cpu";
  const Finished done = first.wait(std::chrono::seconds(120));
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr(all + "\nall is well\n"));
  const Finished other = second.wait(std::chrono::seconds(120));
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_THAT(other.out, HasSubstr(all));
}

TEST_F(MachinesInTwo, DoNotWaitLongForOneThatIsMissing) {
  const std::vector<std::string> hurry{"--machine_timeout", "2"};
  for (const int machine : {0, 1}) {
    const auto start = std::chrono::steady_clock::now();
    test::LiveProcess alone(launch(machine, {"echo", "no"}, hurry), environment());
    const Finished done = alone.wait();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_EQ(done.exit_code, 1) << done.err;
    EXPECT_EQ(done.out, "");
    EXPECT_THAT(done.err, HasSubstr(machine == 0 ? "machine 1 did not come within"
                                                 : "machine 0 at " + machines_.address(0) + ":" +
                                                       std::to_string(port_) + " did not answer"));
    EXPECT_GE(took.count(), 2);
    EXPECT_LE(took.count(), 12);  // the two seconds, and those of a busy machine
  }
}

TEST(OwnAddress, IsNoneThatOthersCannotReach) {
  EXPECT_EQ(distributed::own_address_towards("127.0.0.1"), std::nullopt);
  EXPECT_EQ(distributed::own_address_towards("no.such.host.invalid"), std::nullopt);
}

}  // namespace
}  // namespace haul
