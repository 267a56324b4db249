#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/run_process.h"
#include "tests/support/temporary_folder.h"

namespace haul::cli {
namespace {

using testing::HasSubstr;

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
  EXPECT_EQ(woken({"run", "model"}, {{"SLURM_PROCID", "1"}}), kNot);
}

// Weights of 1 GiB; files that are no weights, or the same ones again, do not count.
class EarlyMemory : public testing::Test {
 protected:
  EarlyMemory() {
    for (const char* name :
         {"a.safetensors", "b.safetensors", "c.bin", "consolidated.safetensors"}) {
      std::ofstream(folder.path() / name).close();
      std::filesystem::resize_file(folder.path() / name, 512 * kMiB);
    }
  }
  std::vector<std::string> run(const std::string& budgets) const {
    return {"run", folder.path().string(), "--prompt", "Hi", "--max-memory", budgets};
  }
  void expect_brought(const std::string& budgets, std::size_t bytes) const {
    EXPECT_THAT(woken(run(budgets), {{"HAUL_PROBE_WAITS_FOR", std::to_string(bytes)}}),
                HasSubstr(fmt::format("early {}, brought {}\n", 2048 * kMiB, bytes)))
        << budgets;
  }

  static constexpr std::size_t kMiB = std::size_t{1} << 20;
  test::TemporaryFolder folder;
};

TEST_F(EarlyMemory, IsWhatTheGpuLeavesToRam) {
  expect_brought("0=512MiB,cpu=4GiB", 512 * kMiB);
  expect_brought("0=0.25GiB, cpu = 4GiB", 768 * kMiB);
  expect_brought("0=300MB,1=200MB,cpu=4GB", 546 * kMiB);
  expect_brought("cpu=300MiB,0=268435456,disk=10GiB", 300 * kMiB);
}

TEST_F(EarlyMemory, IsNoneWhereLittleOrNothingIsKnown) {
  for (const char* const budgets :
       {"0=2GiB,cpu=4GiB", "0=1GiB,cpu=4GiB", "0=900MiB,cpu=4GiB", "0=512MiB", "0=512MiB,cpu=0",
        "0=512MiB,cpu=4Gib", "0=512MiB,cpu=4GiB,what"}) {
    EXPECT_EQ(woken(run(budgets)), kWoken) << budgets;
  }
  const std::string path = folder.path().string();
  const std::string budgets = "0=512MiB,cpu=4GiB";
  EXPECT_EQ(woken({"run", "nosuch", "--prompt", "Hi", "--max-memory", budgets}), kWoken);
  EXPECT_EQ(woken({"run", path, "--prompt", "Hi"}), kWoken) << "budgets of the machine";
  EXPECT_EQ(woken({"run", path, "--max-memory", budgets}), kWoken) << "a prompt from a pipe";
  std::vector<std::string> cast = run(budgets);
  cast.insert(cast.end(), {"--dtype", "bfloat16"});
  EXPECT_EQ(woken(cast), kWoken);
  EXPECT_EQ(woken(run("cpu=4GiB")), kNot);
}

TEST_F(EarlyMemory, LeavesRoomForTheFilesThemselves) {
  std::filesystem::resize_file(folder.path() / "a.safetensors", kMiB << 23);
  EXPECT_EQ(woken(run("0=512MiB,cpu=512MiB")), kWoken);
}

TEST(Wake, DoesWithoutADriver) {
  const test::Finished end = test::run_process({HAUL_WAKE_PROBE, "run", "model"}, {});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(end.out, kNot);
}

}  // namespace
}  // namespace haul::cli
