// A machine with GPUs, on which haul was built without CUDA.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/run_process.h"
#include "tests/support/temporary_folder.h"

namespace haul::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

std::map<std::string, std::string> with_gpus(const std::string& visible) {
  return {{"LD_LIBRARY_PATH", HAUL_FAKE_NVML_FOLDER}, {"CUDA_VISIBLE_DEVICES", visible}};
}

TEST(UnusedGpu, IsToldWithWhatToDo) {
  const test::TemporaryFolder folder;
  ASSERT_EQ(test::run_process({HAUL_WRITE_TINY_CHAT, folder.path()}).exit_code, 0);
  const auto said = [&](const std::vector<std::string>& more, const std::string& visible) {
    std::vector<std::string> arguments{HAUL_COMMAND, "run", folder.path(), "--prompt", "a"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const test::Finished end = test::run_process(arguments, with_gpus(visible));
    EXPECT_EQ(end.exit_code, 0) << end.err;
    return end.err;
  };
  EXPECT_THAT(said({}, "0,1"), HasSubstr("haul: warning: Some GPU is not used: haul was built "
                                         "without CUDA (`make build` has it"));
  EXPECT_THAT(said({"--max-memory", "cpu=1GB"}, "0,1"), Not(HasSubstr("is not used")));
  EXPECT_THAT(said({}, ""), Not(HasSubstr("is not used")));
}

TEST(UnusedGpu, IsInTheReportOfTheMachine) {
  const test::Finished end = test::run_process({HAUL_COMMAND, "env", "--json"}, with_gpus("0,1"));
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const auto json = nlohmann::json::parse(end.out);
  EXPECT_FALSE(json["cuda_part"].get<bool>());
  ASSERT_EQ(json["gpus"].size(), 2U);
  EXPECT_EQ(json["gpus"][0]["name"], "Some GPU");
  EXPECT_EQ(json["gpus"][0]["free"], 20ULL << 30);
  EXPECT_EQ(json["gpus"][1]["total"], 0) << "it does not answer";
}

}  // namespace
}  // namespace haul::cli
