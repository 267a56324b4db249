// `haul test`, as a person runs it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/run_process.h"

namespace haul {
namespace {

using test::Finished;
using test::run_haul;
using ::testing::HasSubstr;

TEST(SelfTest, StartsItsProcessesAndSaysThatAllIsWell) {
  const Finished done = run_haul({"test", "--num_processes", "3", "--cpu"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("3 processes, 3 on this machine, gloo on cpu\nall is well\n"));
}

TEST(SelfTest, WorksAlone) {
  const Finished done = run_haul({"test", "--num-processes", "1", "--cpu"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("1 processes, 1 on this machine, alone on cpu\nall is well\n"));
}

TEST(SelfTest, FailsWithoutAConfigThatCanBeRead) {
  const Finished done = run_haul({"test", "--config_file", "/no/such/file.yaml"});
  EXPECT_EQ(done.exit_code, 1) << done.err;
  EXPECT_THAT(done.err, HasSubstr("/no/such/file.yaml"));
}

}  // namespace
}  // namespace haul
