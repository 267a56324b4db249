#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/live_process.h"
#include "tests/support/run_process.h"
#include "tests/support/temporary_folder.h"

namespace haul::cli {
namespace {

using testing::HasSubstr;

class Config : public testing::Test {
 protected:
  test::Finished run(std::vector<std::string> arguments) const {
    return test::run_haul(std::move(arguments), environment());
  }
  // With answers to the questions.
  test::Finished answer(const std::string& answers) const {
    test::LiveProcess live({HAUL_COMMAND, "config"}, environment());
    live.write(answers);
    live.close_input();
    return live.wait();
  }
  std::map<std::string, std::string> environment() const {
    return {{"HF_HOME", folder_.path().string()}};
  }
  std::filesystem::path file() const { return folder_.path() / "accelerate/default_config.yaml"; }
  std::string text() const {
    std::ifstream stream(file());
    std::ostringstream result;
    result << stream.rdbuf();
    return result.str();
  }

  test::TemporaryFolder folder_;
};

TEST_F(Config, DefaultWritesAFileAndTellsItsName) {
  const auto done = run({"config", "default", "--mixed_precision", "bf16"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(done.out, file().string() + "\n");
  EXPECT_THAT(text(), HasSubstr("mixed_precision: bf16\n"));
  EXPECT_THAT(text(), HasSubstr("compute_environment: LOCAL_MACHINE\n"));
}

TEST_F(Config, DefaultChangesNoFileThatIsThere) {
  folder_.write("accelerate/default_config.yaml", "mine");
  const auto done = run({"config", "default"});
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_THAT(done.err, HasSubstr("default_config.yaml: is there already"));
  EXPECT_EQ(text(), "mine");
}

TEST_F(Config, AsksAndWritesWhatWasAnswered) {
  const auto done = answer("2\n1\n10.0.0.7\n\nno\nyes\n8\nyes\nfp16\nyes\n");
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(text(),
            "compute_environment: LOCAL_MACHINE\n"
            "debug: true\n"
            "distributed_type: MULTI_CPU\n"
            "enable_cpu_affinity: true\n"
            "machine_rank: 1\n"
            "main_process_ip: \"10.0.0.7\"\n"
            "main_process_port: 29500\n"
            "main_training_function: main\n"
            "mixed_precision: fp16\n"
            "num_machines: 2\n"
            "num_processes: 8\n"
            "rdzv_backend: static\n"
            "same_network: false\n"
            "use_cpu: true\n");
}

TEST_F(Config, AsksAgainAfterAnAnswerThatCannotBe) {
  const auto done = answer("none\n0\n1\nperhaps\nyes\n2\nno\nint8\nno\nno\n");
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.err, HasSubstr("A number from 1 to"));
  EXPECT_THAT(done.err, HasSubstr("yes or no."));
  EXPECT_THAT(done.err, HasSubstr("One of no, fp16, bf16, fp8."));
  EXPECT_THAT(text(), HasSubstr("num_processes: 2\n"));
}

TEST_F(Config, WritesNothingWhenTheAnswersEndEarly) {
  const auto done = answer("1\nyes\n");
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_THAT(done.err, HasSubstr("nothing was written"));
  EXPECT_FALSE(std::filesystem::exists(file()));
}

TEST_F(Config, OffersWhatTheFileSaysAndKeepsItsSections) {
  folder_.write("accelerate/default_config.yaml",
                "distributed_type: MULTI_CPU\nnum_processes: 6\nuse_cpu: true\n"
                "mixed_precision: bf16\nfsdp_config:\n  fsdp_x: 1\n");
  const auto done = answer("\n\n\n\n\n\n");
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(text(), HasSubstr("num_processes: 6\n"));
  EXPECT_THAT(text(), HasSubstr("mixed_precision: bf16\n"));
  EXPECT_THAT(text(), HasSubstr("fsdp_config:\n  fsdp_x: 1\n"));
}

TEST_F(Config, UpdateAddsTheKeysOfToday) {
  const auto old = folder_.write("old.json", R"({"distributed_type": "NO", "fp16": true})");
  const auto done = run({"config", "update", "--config_file", old, "--json"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  const auto json = nlohmann::json::parse(done.out);
  EXPECT_EQ(json["mixed_precision"], "fp16");
  EXPECT_EQ(json["num_processes"], 1);
  EXPECT_EQ(nlohmann::json::parse(std::ifstream(old)), json);
}

TEST_F(Config, UpdateNamesAFileThatIsNotThere) {
  const auto done = run({"config", "update"});
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_THAT(done.err, HasSubstr("default_config.yaml"));
}

TEST_F(Config, EnvShowsItWithTheMachine) {
  run({"config", "default"});
  const auto done = run({"env", "--json"});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  const auto json = nlohmann::json::parse(done.out);
  EXPECT_EQ(json["config"]["values"]["compute_environment"], "LOCAL_MACHINE");
  EXPECT_EQ(json["config"]["file"], file().string());
  EXPECT_GT(json["memory"]["total"].get<long long>(), 1 << 20);
  EXPECT_GT(json["disk"]["free"].get<long long>(), 0);
  EXPECT_FALSE(json["cpu_features"].empty());
  EXPECT_TRUE(json.contains("driver"));
  EXPECT_THAT(run({"env"}).out, HasSubstr("mixed_precision: no"));
}

TEST_F(Config, EnvShowsWhatIsWrongWithIt) {
  folder_.write("accelerate/default_config.yaml", "zebra: 1");
  EXPECT_THAT(run({"env"}).out, HasSubstr("unknown keys: 'zebra'"));
}

}  // namespace
}  // namespace haul::cli
