#include "core/launch/cpu_topology.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace haul::core {
namespace {

using testing::ElementsAre;
using Sets = std::vector<std::vector<int>>;

std::vector<int> first(int count) {
  std::vector<int> cpus(static_cast<std::size_t>(count));
  std::iota(cpus.begin(), cpus.end(), 0);
  return cpus;
}

// `nodes` of `cores` with two threads each: the second threads are numbered after all first ones.
std::vector<CpuCore> machine(int nodes, int cores) {
  std::vector<CpuCore> result;
  for (int i = 0; i < nodes * cores; ++i) result.push_back({i / cores, {i, i + nodes * cores}});
  return result;
}

TEST(CpuTopology, ReadsNodesAndThreadsFromSysfs) {
  const test::TemporaryFolder root;
  root.write("sys/devices/system/node/node0/cpulist", "0-1,4-5\n");
  root.write("sys/devices/system/node/node1/cpulist", "2-3,6-7\n");
  root.write("sys/devices/system/node/possible", "0-1\n");
  for (int cpu = 0; cpu < 8; ++cpu) {
    root.write(
        "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
        std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4) + "\n");
  }
  const auto cores = read_cores(root.path(), first(8));
  ASSERT_EQ(cores.size(), 4U);
  EXPECT_THAT(cores[0].cpus, ElementsAre(0, 4));
  EXPECT_THAT(cores[3].cpus, ElementsAre(3, 7));
  EXPECT_EQ(cores[1].node, 0);
  EXPECT_EQ(cores[2].node, 1);
}

TEST(CpuTopology, LeavesOutWhatThisProcessMayNotUse) {
  const test::TemporaryFolder root;
  root.write("sys/devices/system/node/node0/cpulist", "0-3\n");
  const auto cores = read_cores(root.path(), {1, 3});
  ASSERT_EQ(cores.size(), 2U);
  EXPECT_THAT(cores[0].cpus, ElementsAre(1));
  EXPECT_THAT(cores[1].cpus, ElementsAre(3));
}

TEST(CpuTopology, TakesNonsenseInSysfsForOneNode) {
  const test::TemporaryFolder root;
  root.write("sys/devices/system/node/node0/cpulist", "0-99999999999\n");
  root.write("sys/devices/system/node/nodeX/cpulist", "0-1\n");
  root.write("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "-7,,x");
  EXPECT_EQ(read_cores(root.path(), first(2)).size(), 2U);
}

TEST(CpuTopology, ReadsThisMachine) {
  const auto cpus = allowed_cpus();
  ASSERT_FALSE(cpus.empty());
  std::size_t threads = 0;
  for (const CpuCore& core : read_cores("/", cpus)) threads += core.cpus.size();
  EXPECT_EQ(threads, cpus.size());
}

TEST(ShareCores, GivesEachProcessWholeCoresOfOneNode) {
  EXPECT_EQ(share_cores(machine(2, 4), 4),
            (Sets{{0, 1, 8, 9}, {2, 3, 10, 11}, {4, 5, 12, 13}, {6, 7, 14, 15}}));
}

TEST(ShareCores, GivesFewProcessesWholeNodes) {
  EXPECT_EQ(share_cores(machine(4, 1), 2), (Sets{{0, 1, 4, 5}, {2, 3, 6, 7}}));
}

TEST(ShareCores, SharesACoreWhereThereAreMoreProcesses) {
  EXPECT_EQ(share_cores(machine(1, 2), 3), (Sets{{0, 2}, {1, 3}, {0, 2}}));
}

TEST(ShareCores, SendsMoreProcessesWhereThereAreMoreCores) {
  std::vector<CpuCore> cores;
  for (int i = 0; i < 8; ++i) cores.push_back({i < 6 ? 0 : 1, {i}});
  EXPECT_EQ(share_cores(cores, 4), (Sets{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
}

TEST(ShareCores, CrossesNoNodeAndLeavesNoCoreUnusedOnEverySmallMachine) {
  for (int nodes = 1; nodes <= 4; ++nodes) {
    for (int cores = 1; cores <= 5; ++cores) {
      const auto all = machine(nodes, cores);
      for (int processes = 1; processes <= 24; ++processes) {
        const Sets sets = share_cores(all, processes);
        ASSERT_EQ(sets.size(), static_cast<std::size_t>(processes));
        std::set<int> used;
        for (const auto& cpus : sets) {
          ASSERT_FALSE(cpus.empty());
          used.insert(cpus.begin(), cpus.end());
          std::set<int> met;
          for (const int cpu : cpus) met.insert(cpu % (nodes * cores) / cores);
          if (processes >= nodes) {
            EXPECT_EQ(met.size(), 1U);
          }
        }
        EXPECT_EQ(used.size(), all.size() * 2);
      }
    }
  }
}

TEST(ShareCores, HasNothingToShareWithoutCores) {
  EXPECT_TRUE(share_cores({}, 2).empty());
}

}  // namespace
}  // namespace haul::core
