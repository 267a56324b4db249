#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/run_process.h"

namespace haul::cli {
namespace {

std::string woken(std::vector<std::string> arguments,
                  std::map<std::string, std::string> environment = {}) {
  arguments.insert(arguments.begin(), HAUL_WAKE_PROBE);
  environment["LD_LIBRARY_PATH"] = HAUL_FAKE_DRIVER_FOLDER;
  environment["HAUL_FAKE_DRIVER"] = "with its environment";
  const test::Finished end = test::run_process(arguments, environment);
  EXPECT_EQ(end.exit_code, 0) << end.err;
  return end.out;
}

constexpr const char* kWoken = "init with its environment\ncontext 40\nmain\n";
constexpr const char* kNot = "main\n";

TEST(Wake, GetsTheFirstGpuReadyForARun) {
  EXPECT_EQ(woken({"run", "model"}), kWoken);
  EXPECT_EQ(woken({"run", "model", "--prompt", "Hi"}), kWoken);
  EXPECT_EQ(woken({"run", "model", "--max-memory", "0=1GiB,cpu=2GiB"}), kWoken);
  EXPECT_EQ(woken({"run", "model", "--max_memory=0=1GiB"}), kWoken);
  EXPECT_EQ(woken({"run", "model", "--max-memory", "cpu=2GiB, 0 = 0.5GiB"}), kWoken);
}

TEST(Wake, LeavesItWhereItMayNotBeUsed) {
  EXPECT_EQ(woken({}), kNot);
  EXPECT_EQ(woken({"run"}), kNot);
  EXPECT_EQ(woken({"run", "--help"}), kNot);
  EXPECT_EQ(woken({"bench", "offload"}), kNot);
  EXPECT_EQ(woken({"run", "model", "--max-memory", "cpu=2GiB"}), kNot);
  EXPECT_EQ(woken({"run", "model", "--max-memory=cpu=2GiB"}), kNot);
  EXPECT_EQ(woken({"run", "model", "--max-memory", "0=0,1=20GiB"}), kNot);
  EXPECT_EQ(woken({"run", "model", "--max-memory", "10=20GiB"}), kNot);
  EXPECT_EQ(woken({"run", "model", "--max-memory"}), kNot);
  EXPECT_EQ(woken({"run", "model", "--plan", "plan.json"}), kNot);
  EXPECT_EQ(woken({"run", "model", "--device-map", "map.json"}), kNot);
  EXPECT_EQ(woken({"run", "model", "--num-processes", "2"}), kNot);
  EXPECT_EQ(woken({"run", "model"}, {{"LOCAL_RANK", "1"}}), kNot);
  EXPECT_EQ(woken({"run", "model"}, {{"OMPI_COMM_WORLD_LOCAL_RANK", "1"}}), kNot);
}

TEST(Wake, DoesWithoutADriver) {
  const test::Finished end = test::run_process({HAUL_WAKE_PROBE, "run", "model"}, {});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(end.out, kNot);
}

}  // namespace
}  // namespace haul::cli
