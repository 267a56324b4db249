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

}  // namespace
}  // namespace haul::cli
