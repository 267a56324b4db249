#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/run_process.h"
#include "tests/support/temporary_folder.h"

namespace haul::cli {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr const char* kTree =
    R"({"class": "Model", "parameters": {"w": {"dtype": "F32", "shape": [4, 3]}}})";

TEST(Command, HelpNamesTheVerbsAndSucceeds) {
  const auto run = test::run_haul({"--help"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(run.out, HasSubstr("tree"));
  EXPECT_THAT(run.err, testing::IsEmpty());
}

TEST(Command, AnUnknownVerbIsAUsageErrorThatNamesIt) {
  const auto run = test::run_haul({"frobnicate"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, StartsWith("haul: error: there is no verb 'frobnicate'\n"));
  EXPECT_THAT(run.out, testing::IsEmpty());
}

TEST(Command, AnUnknownWordBehindAVerbIsToldWithThoseThatItKnows) {
  const auto run = test::run_haul({"config", "defualt"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(run.err,
            "haul: error: there is no 'haul config defualt'\n  haul config has default update\n");
}

TEST(Command, AnUnknownFlagIsAUsageError) {
  const test::TemporaryFolder folder;
  const auto run = test::run_haul({"tree", folder.write("t.json", kTree), "--frobnicate"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("--frobnicate"));
}

TEST(Command, AMissingFileFailsWithItsName) {
  const auto run = test::run_haul({"tree", "/nowhere/at/all.json"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, StartsWith("haul: error: "));
  EXPECT_THAT(run.err, HasSubstr("/nowhere/at/all.json"));
}

TEST(Command, StartsWithoutLoadingTorchForAVerbThatDecides) {
  const test::TemporaryFolder folder;
  const auto run =
      test::run_haul({"tree", folder.write("t.json", kTree), "--json"}, {{"LD_DEBUG", "files"}});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(run.err, HasSubstr("libc.so"));
  EXPECT_THAT(run.err, Not(HasSubstr("libtorch")));
}

// What the part with torch is given of the variable that says how long OpenMP's threads turn round.
std::string turns(const std::map<std::string, std::string>& environment) {
  const test::TemporaryFolder folder;
  std::filesystem::copy(HAUL_COMMAND, folder.path() / "haul");
  const auto part = folder.write("haul-torch", "#!/bin/sh\necho \"turns: $GOMP_SPINCOUNT\"\n");
  std::filesystem::permissions(part, std::filesystem::perms::owner_all);
  return test::run_process({folder.path() / "haul", "run"}, environment).out;
}

TEST(Command, LetsIdleThreadsSleepSoonBesideAGpuUnlessTheUserSaysHowLong) {
  ::unsetenv("GOMP_SPINCOUNT");
  ::unsetenv("OMP_WAIT_POLICY");
#if defined(__x86_64__)
  const bool beside_gpu =
      std::filesystem::exists("/dev/nvidiactl") || std::filesystem::exists("/dev/dxg");
#else
  const bool beside_gpu = false;  // where the turns are short
#endif
  EXPECT_EQ(turns({}), beside_gpu ? "turns: 10000\n" : "turns: \n");
  EXPECT_EQ(turns({{"GOMP_SPINCOUNT", "77"}}), "turns: 77\n");
  EXPECT_EQ(turns({{"OMP_WAIT_POLICY", "active"}}), "turns: \n");
}

}  // namespace
}  // namespace haul::cli
