#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/file.h"
#include "haul/profile.h"
#include "tests/support/run_process.h"
#include "tests/support/temporary_folder.h"

namespace haul {
namespace {

using test::run_haul;
using testing::HasSubstr;

TEST(BenchCommand, KeepsWhatItMeasuresForPlans) {
  const test::TemporaryFolder folder{std::filesystem::current_path()};
  const std::string file = folder.path() / "made" / "profile.json";
  const auto done =
      run_haul({"bench", "machine", "--json", "--folder", folder.path()}, {{"HAUL_PROFILE", file}});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  const Profile profile = read_profile(done.out, "stdout");
  EXPECT_TRUE(profile.measured);
  // Within a factor of a thousand of any machine.
  for (const double rate : {profile.ram_bandwidth, profile.disk_bandwidth}) {
    EXPECT_GT(rate, 1e7);
    EXPECT_LT(rate, 1e13);
  }
  EXPECT_GT(profile.cpu_operations, 1e8);
  EXPECT_EQ(read_profile(core::read_file(file, kMiB), file), profile);
  std::size_t left = 0;
  for ([[maybe_unused]] const auto& item : std::filesystem::directory_iterator(folder.path())) {
    ++left;
  }
  EXPECT_EQ(left, 1U) << "nothing but the folder of the profile";
}

TEST(BenchCommand, SaysWhatItCanMeasure) {
  const auto none = run_haul({"bench"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("A subcommand is required"));
  const auto nowhere = run_haul({"bench", "machine", "--folder", "/no/such/folder"});
  EXPECT_EQ(nowhere.exit_code, 2);
  EXPECT_THAT(nowhere.err, HasSubstr("/no/such/folder"));
}

}  // namespace
}  // namespace haul
