#include "core/launch/rank_environment.h"

#include <map>

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace haul::core {
namespace {

using testing::HasSubstr;

RankEnvironment read(const std::map<std::string, std::string>& variables) {
  return read_rank_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

void expect_rank(const RankEnvironment& found, RankSource source, int rank, int world,
                 int local_rank, int local_world) {
  EXPECT_EQ(static_cast<int>(found.source), static_cast<int>(source));
  EXPECT_EQ(found.rank, rank);
  EXPECT_EQ(found.world, world);
  EXPECT_EQ(found.local_rank, local_rank);
  EXPECT_EQ(found.local_world, local_world);
}

TEST(RankEnvironment, WithoutALauncherIsTheOnlyProcess) {
  const RankEnvironment found = read({});
  expect_rank(found, RankSource::kAlone, 0, 1, 0, 1);
  EXPECT_EQ(found.master_addr, "127.0.0.1");
  EXPECT_EQ(found.master_port, 29500);
}

TEST(RankEnvironment, ReadsTorchrun) {
  const RankEnvironment found = read({{"RANK", "5"},
                                      {"WORLD_SIZE", "8"},
                                      {"LOCAL_RANK", "1"},
                                      {"LOCAL_WORLD_SIZE", "4"},
                                      {"MASTER_ADDR", "10.0.0.1"},
                                      {"MASTER_PORT", "1234"}});
  expect_rank(found, RankSource::kTorchrun, 5, 8, 1, 4);
  EXPECT_EQ(found.master_addr, "10.0.0.1");
  EXPECT_EQ(found.master_port, 1234);
}

TEST(RankEnvironment, AssumesOneProcessOnAMachineWhereNoLocalRankIsGiven) {
  expect_rank(read({{"RANK", "5"}, {"WORLD_SIZE", "8"}}), RankSource::kTorchrun, 5, 8, 0, 1);
}

TEST(RankEnvironment, AssumesOneMachineWhereOnlyTheLocalRankIsGiven) {
  expect_rank(read({{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "5"}}),
              RankSource::kTorchrun, 5, 8, 5, 8);
}

TEST(RankEnvironment, ReadsOpenMpi) {
  expect_rank(read({{"OMPI_COMM_WORLD_RANK", "3"},
                    {"OMPI_COMM_WORLD_SIZE", "4"},
                    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                    {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
              RankSource::kOpenMpi, 3, 4, 1, 2);
}

TEST(RankEnvironment, ReadsMvapich) {
  expect_rank(read({{"MV2_COMM_WORLD_RANK", "3"},
                    {"MV2_COMM_WORLD_SIZE", "4"},
                    {"MV2_COMM_WORLD_LOCAL_RANK", "1"},
                    {"MV2_COMM_WORLD_LOCAL_SIZE", "2"}}),
              RankSource::kMvapich, 3, 4, 1, 2);
}

TEST(RankEnvironment, ReadsMpichAndIntel) {
  expect_rank(read({{"PMI_RANK", "3"},
                    {"PMI_SIZE", "4"},
                    {"MPI_LOCALRANKID", "1"},
                    {"MPI_LOCALNRANKS", "2"}}),
              RankSource::kMpich, 3, 4, 1, 2);
}

TEST(RankEnvironment, ReadsASlurmStep) {
  const RankEnvironment found = read({{"SLURM_PROCID", "6"},
                                      {"SLURM_NTASKS", "16"},
                                      {"SLURM_STEP_NUM_TASKS", "7"},
                                      {"SLURM_LOCALID", "0"},
                                      {"SLURM_NODEID", "3"},
                                      {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                                      {"SLURM_STEP_NODELIST", "gpu[03-05,9],login"}});
  expect_rank(found, RankSource::kSlurm, 6, 7, 0, 1);
  EXPECT_EQ(found.master_addr, "gpu03");
}

TEST(RankEnvironment, ReadsSlurmsVariablesOfTheJobWhereTheStepHasNone) {
  expect_rank(read({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "1"}}),
              RankSource::kSlurm, 1, 2, 1, 2);
}

TEST(RankEnvironment, IsAloneInTheScriptOfASlurmBatchJob) {
  expect_rank(read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"ENVIRONMENT", "BATCH"}}),
              RankSource::kAlone, 0, 1, 0, 1);
}

TEST(RankEnvironment, PrefersTorchrunInsideOfASlurmJob) {
  expect_rank(
      read({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}),
      RankSource::kTorchrun, 1, 2, 0, 1);
}

TEST(RankEnvironment, RefusesHalfOfAPair) {
  test::expect_error(ErrorKind::kUsage, HasSubstr("RANK is set but WORLD_SIZE is not"), [] {
    read({{"RANK", "1"}});
  });
  test::expect_error(ErrorKind::kUsage, HasSubstr("WORLD_SIZE is set but RANK is not"), [] {
    read({{"WORLD_SIZE", "1"}});
  });
}

TEST(RankEnvironment, RefusesNumbersThatCannotBe) {
  test::expect_error(ErrorKind::kUsage, HasSubstr("RANK is '2', expected a number from 0 to 1"),
                     [] {
                       read({{"RANK", "2"}, {"WORLD_SIZE", "2"}});
                     });
  test::expect_error(ErrorKind::kUsage, HasSubstr("WORLD_SIZE is '2x'"), [] {
    read({{"RANK", "0"}, {"WORLD_SIZE", "2x"}});
  });
  test::expect_error(ErrorKind::kUsage, HasSubstr("LOCAL_RANK is '-1'"), [] {
    read({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "-1"}});
  });
  test::expect_error(ErrorKind::kUsage, HasSubstr("MASTER_PORT is '70000'"), [] {
    read({{"MASTER_PORT", "70000"}});
  });
}

}  // namespace
}  // namespace haul::core
