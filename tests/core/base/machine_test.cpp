#include "core/base/machine.h"

#include <map>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace haul::core {
namespace {

constexpr const char* kMeminfo = "MemTotal: 4000 kB\nMemFree: 500 kB\nMemAvailable: 1000 kB\n";

class FakeMachine : public testing::Test {
 protected:
  Os os(std::map<std::string, std::string> variables = {}) const {
    Os os;
    os.root = folder_.path();
    os.variable = [variables](const std::string& name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      if (found == variables.end()) return std::nullopt;
      return found->second;
    };
    os.gpus = [] {
      return std::vector<GpuMemory>{{"GPU-aa11", "A", 100, 80}, {"GPU-ab22", "B", 100, 70}};
    };
    return os;
  }

  test::TemporaryFolder folder_;
};

TEST_F(FakeMachine, RamIsWhatTheKernelCallsAvailable) {
  folder_.write("proc/meminfo", kMeminfo);
  EXPECT_EQ(read_machine(os()).ram, 1000 * kKiB);
}

TEST_F(FakeMachine, RamIsSharedOutAmongLocalProcesses) {
  folder_.write("proc/meminfo", kMeminfo);
  const Machine machine = read_machine(os({{"LOCAL_WORLD_SIZE", "4"}}));
  EXPECT_EQ(machine.local_processes, 4);
  EXPECT_EQ(machine.ram, 250 * kKiB);
  EXPECT_EQ(read_machine(os({{"LOCAL_WORLD_SIZE", "many"}})).ram, 1000 * kKiB);
}

TEST_F(FakeMachine, GpusAreSharedOutAmongLocalProcesses) {
  const auto shares = [&](const char* processes, const char* rank, int gpus) {
    const Machine machine =
        read_machine(os({{"LOCAL_WORLD_SIZE", processes}, {"LOCAL_RANK", rank}}));
    std::vector<Bytes> result;
    for (int gpu = 0; gpu < gpus; ++gpu) result.push_back(gpu_share(machine, gpu, gpus, 60));
    return result;
  };
  using Shares = std::vector<Bytes>;
  EXPECT_EQ(shares("1", "0", 2), (Shares{60, 60}));
  EXPECT_EQ(shares("2", "0", 3), (Shares{60, 0, 60}));
  EXPECT_EQ(shares("2", "1", 3), (Shares{0, 60, 0}));
  EXPECT_EQ(shares("3", "0", 2), (Shares{30, 0}));
  EXPECT_EQ(shares("3", "1", 2), (Shares{0, 60}));
  EXPECT_EQ(shares("3", "2", 2), (Shares{30, 0}));
}

TEST_F(FakeMachine, AVersion2CgroupAboveThisOneLimitsRam) {
  folder_.write("proc/meminfo", kMeminfo);
  folder_.write("proc/self/cgroup", "0::/outer/inner\n");
  folder_.write("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  folder_.write("sys/fs/cgroup/outer/memory.max", "300000\n");
  folder_.write("sys/fs/cgroup/outer/memory.current", "200000\n");
  EXPECT_EQ(available_ram(folder_.path()), 100000U);
  folder_.write("sys/fs/cgroup/outer/memory.stat", "anon 1\ninactive_file 50000\n");
  EXPECT_EQ(available_ram(folder_.path()), 150000U) << "file pages can be given up";
  folder_.write("sys/fs/cgroup/outer/memory.stat",
                "anon 1\ninactive_file 50000\nactive_file 30000\n");
  EXPECT_EQ(available_ram(folder_.path()), 180000U) << "those that were read again as well";
}

TEST_F(FakeMachine, AVersion1CgroupLimitsRam) {
  folder_.write("proc/meminfo", kMeminfo);
  folder_.write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/job\n0::/\n");
  folder_.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "500000\n");
  folder_.write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "600000\n");
  EXPECT_EQ(available_ram(folder_.path()), 0U);
  folder_.write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "100000\n");
  EXPECT_EQ(available_ram(folder_.path()), 400000U);
}

TEST_F(FakeMachine, NothingReadableIsNothingAvailable) {
  EXPECT_EQ(available_ram(folder_.path()), 0U);
}

TEST_F(FakeMachine, VisibleDevicesAreChosenAndOrderedByNumberOrUuid) {
  const auto names = [&](const std::string& visible) {
    std::string result;
    for (const GpuMemory& gpu : read_machine(os({{"CUDA_VISIBLE_DEVICES", visible}})).gpus) {
      result += gpu.name;
    }
    return result;
  };
  EXPECT_EQ(read_machine(os()).gpus.size(), 2U);
  EXPECT_EQ(names("1,0"), "BA");
  EXPECT_EQ(names("GPU-ab"), "B");
  EXPECT_EQ(names("GPU-a"), "") << "two GPUs begin like this";
  EXPECT_EQ(names("GPU-ab22, 0"), "BA");
  EXPECT_EQ(names("0,7,1"), "A") << "the list ends at an unknown number";
  EXPECT_EQ(names("-1"), "");
  EXPECT_EQ(names(""), "");
  EXPECT_EQ(names("0,0"), "");
}

TEST_F(FakeMachine, DiskIsMeasuredWhereTheFolderWillBe) {
  EXPECT_GT(free_disk(folder_.path() / "not" / "yet"), 0U);
}

}  // namespace
}  // namespace haul::core
