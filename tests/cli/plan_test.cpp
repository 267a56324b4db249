// `haul map` and `haul plan` as a user runs them: plans of real models against golden files that a
// person can read, errors for input that makes no sense, and the drawing.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/run_process.h"
#include "tests/support/temporary_folder.h"

namespace haul::cli {
namespace {

using test::Finished;
using testing::HasSubstr;

const std::filesystem::path kData = std::filesystem::path(HAUL_SOURCE) / "tests" / "data";

Finished run(std::vector<std::string> arguments) {
  return test::run_haul(std::move(arguments), {{"HAUL_PROFILE", "/nonexistent"}});
}

std::string file_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Machine {
  const char* name;
  const char* memory;
};

class GoldenPlan : public testing::TestWithParam<std::tuple<const char*, Machine>> {};

// With HAUL_WRITE_GOLDEN set the files are written instead; read the difference before it lands.
TEST_P(GoldenPlan, ReadsAsRecorded) {
  const auto [model, machine] = GetParam();
  const std::string config = (kData / "configs" / model / "config.json").string();
  const Finished plan =
      run({"plan", config, "--max-memory", machine.memory, "--context", "2048", "--explain"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  std::string text = plan.out;
  const std::size_t path = text.find(config);
  ASSERT_NE(path, text.npos);
  text.replace(path, config.size(), model);
  const auto golden = kData / "plans" / (std::string(model) + "-" + machine.name + ".txt");
  if (std::getenv("HAUL_WRITE_GOLDEN") != nullptr) std::ofstream(golden) << text;
  EXPECT_EQ(text, file_text(golden)) << golden;
}

INSTANTIATE_TEST_SUITE_P(
    RealModels, GoldenPlan,
    testing::Combine(
        testing::Values("gpt2-xl", "t0pp", "bloom", "llama-3-70b", "llama-3.1-405b"),
        testing::Values(Machine{"one-gpu", "0=80GB,cpu=256GB"},
                        Machine{
                            "eight-gpus",
                            "0=80GB,1=80GB,2=80GB,3=80GB,4=80GB,5=80GB,6=80GB,7=80GB,cpu=512GB"},
                        Machine{"laptop", "cpu=16GB"})),
    [](const auto& test) {
      std::string name = std::string(std::get<0>(test.param)) + "_" + std::get<1>(test.param).name;
      std::replace_if(
          name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
      return name;
    });

TEST(GoldenMap, BloomOnTheGuidesEightGpus) {
  const Finished map =
      run({"map", (kData / "configs/bloom/config.json").string(), "--max-memory",
           R"({"0": "30GIB", "1": "46GIB", "2": "46GIB", "3": "46GIB", "4": "46GIB", "5": "46GIB",
               "6": "46GIB", "7": "46GIB"})",
           "--device-map", "sequential"});
  ASSERT_EQ(map.exit_code, 0) << map.err;
  const auto golden = kData / "plans" / "bloom-guide-map.txt";
  if (std::getenv("HAUL_WRITE_GOLDEN") != nullptr) std::ofstream(golden) << map.out;
  EXPECT_EQ(map.out, file_text(golden));
}

TEST(PlanCommand, TakesTheLongestContextThatNeedsNoOffload) {
  const std::string config = (kData / "configs/llama-3.1-405b/config.json").string();
  const Finished plan = run({"plan", config, "--max-memory",
                             "0=130GB,1=130GB,2=130GB,3=130GB,4=130GB,5=130GB,6=130GB,7=130GB",
                             "--context", "auto:1024", "--json"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("\"context\": 131072"));
  const Finished small =
      run({"plan", config, "--max-memory", "0=80GB,cpu=1TB", "--context", "auto:1024", "--json"});
  EXPECT_THAT(small.out, HasSubstr("\"context\": 1024"));
  EXPECT_THAT(small.err, HasSubstr("needs offload"));
}

TEST(PlanCommand, SaysThatSpeedsAreGuessesUntilTheMachineIsMeasured) {
  const test::TemporaryFolder folder;
  const std::string config = (kData / "configs/gpt2-xl/config.json").string();
  const std::vector<std::string> plan{"plan", config, "--max-memory", "cpu=16GB"};
  EXPECT_THAT(run(plan).err, HasSubstr("'haul bench machine' measures"));
  const std::string profile = (folder.path() / "profile.json").string();
  folder.write("profile.json", R"({"version": 1, "measured": true})");
  const Finished measured = test::run_haul(plan, {{"HAUL_PROFILE", profile}});
  EXPECT_EQ(measured.exit_code, 0) << measured.err;
  EXPECT_EQ(measured.err, "");
}

TEST(PlanCommand, SavesLoadsComparesAndDraws) {
  const test::TemporaryFolder folder;
  const std::string config = (kData / "configs/llama-3-70b/config.json").string();
  const std::string saved = (folder.path() / "plan.json").string();
  const std::string svg = (folder.path() / "plan.svg").string();
  ASSERT_EQ(run({"plan", config, "--max-memory", "0=80GB,cpu=256GB", "--context", "8192", "--save",
                 saved, "--svg", svg})
                .exit_code,
            0);
  const Finished shown = run({"plan", "--load", saved});
  EXPECT_THAT(shown.out, HasSubstr("tokens/s"));
  const Finished compared =
      run({"plan", config, "--max-memory", "0=160GB", "--context", "8192", "--compare", saved});
  EXPECT_THAT(compared.out, HasSubstr("times faster"));
  EXPECT_THAT(run({"plan", "--load", saved, "--compare", saved}).out, HasSubstr("the same"));

  std::string text = file_text(saved);
  text.replace(text.find("\"batch\": 1"), 10, "\"batch\": 2");
  folder.write("plan.json", text);
  const Finished edited = run({"plan", "--load", saved});
  EXPECT_EQ(edited.exit_code, 1);
  EXPECT_THAT(edited.err, HasSubstr("edited"));

  const std::string png = (folder.path() / "plan.png").string();
  const Finished drawn = test::run_process({"rsvg-convert", svg, "-o", png});
  ASSERT_EQ(drawn.exit_code, 0) << "rsvg-convert of librsvg2-bin: " << drawn.err;
  EXPECT_GT(std::filesystem::file_size(png), 5000U);
}

TEST(MapCommand, ChecksAGivenMap) {
  const test::TemporaryFolder folder;
  const std::string config = (kData / "configs/gpt2-xl/config.json").string();
  const auto map = [&](const std::string& text) {
    return run({"map", config, "--max-memory", "0=80GB,cpu=80GB", "--device-map",
                folder.write("map.json", text).string()});
  };
  EXPECT_EQ(map(R"({"": 0})").exit_code, 0);
  const Finished partial = map(R"({"transformer.h": 0})");
  EXPECT_EQ(partial.exit_code, 2);
  EXPECT_THAT(partial.err, HasSubstr("transformer.wte.weight"));
  EXPECT_THAT(map(R"({"transformer": 0, "lm_head": "cpu", "bert": 1})").err,
              testing::AllOf(HasSubstr("name no module: bert"), HasSubstr("several devices")));
  EXPECT_THAT(map(R"({"": "tpu"})").err, HasSubstr("'tpu' is not a device"));
}

TEST(MapCommand, RefusesWhatMakesNoSense) {
  const std::string config = (kData / "configs/gpt2-xl/config.json").string();
  const auto error = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments{"map", config};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished done = run(arguments);
    EXPECT_EQ(done.exit_code, 2) << done.err;
    return done.err;
  };
  EXPECT_THAT(error({"--max-memory", "0=10XB"}), HasSubstr("'10XB' is not a size"));
  EXPECT_THAT(error({"--max-memory", "tpu=1GB"}), HasSubstr("'tpu' is not a device"));
  EXPECT_THAT(error({"--max-memory", "0=-5GB"}), HasSubstr("-5GB"));
  EXPECT_THAT(error({"--max-memory", "0=99999999999TB"}), HasSubstr("too large"));
  EXPECT_THAT(error({"--device-map", "fast"}), HasSubstr("'fast'"));
  EXPECT_THAT(error({"--dtype", "float17"}), HasSubstr("'float17' is not a dtype"));
  EXPECT_THAT(error({"--context", "many"}), HasSubstr("'many' is not a context"));
  EXPECT_THAT(error({"--context", "-3"}), HasSubstr("-3"));
  EXPECT_EQ(run({"map"}).exit_code, 2);
}

}  // namespace
}  // namespace haul::cli
