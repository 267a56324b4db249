#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/run_process.h"

namespace haul::cli {
namespace {

TEST(Env, ReportsTheTorchThatItRunsOn) {
  const auto run = test::run_haul({"env", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto json = nlohmann::json::parse(run.out);
  EXPECT_TRUE(json["torch"].get<std::string>().starts_with("2."));
  EXPECT_GE(json["cores"].get<int>(), 1);
  EXPECT_TRUE(json["gpus"].is_array());
}

}  // namespace
}  // namespace haul::cli
