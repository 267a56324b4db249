// Pipelines of real processes on this machine.

#include "haul/torch/pipeline.h"

#include <filesystem>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/launch/ports.h"
#include "tests/support/live_process.h"
#include "tests/support/rank_variables.h"
#include "tests/support/temporary_folder.h"

namespace haul {
namespace {

using test::Finished;

class Processes : public ::testing::Test {
 protected:
  void expect_all_right(const std::string& name, int world) {
    SCOPED_TRACE(name + ", " + std::to_string(world) + " processes");
    const int port = core::free_port();
    std::vector<std::unique_ptr<test::LiveProcess>> processes;
    for (int i = 0; i < world; ++i) {
      processes.push_back(std::make_unique<test::LiveProcess>(
          std::vector<std::string>{HAUL_PARALLEL_WORKER, name, folder_.path()},
          test::rank_variables(i, world, port)));
    }
    for (const auto& process : processes) {
      const Finished ended = process->wait(std::chrono::seconds(300));
      EXPECT_EQ(ended.exit_code, 0) << ended.err;
    }
  }
  void write(std::vector<std::string> what) {
    what.insert(what.begin(), HAUL_PARALLEL_WORKER);
    what.insert(what.begin() + 2, folder_.path());
    const Finished made = test::run_process(what);
    ASSERT_EQ(made.exit_code, 0) << made.err;
  }

  test::TemporaryFolder folder_{std::filesystem::current_path()};
};

TEST_F(Processes, GiveTheBitsOfOneThatComputesTheSameChunks) {
  for (const int world : {1, 2, 3, 4}) expect_all_right("blocks", world);
}

TEST_F(Processes, HearOfAFailureAndGoOn) {
  expect_all_right("failing_blocks", 3);
}

TEST_F(Processes, DoNotWaitForOneThatEnds) {
  expect_all_right("death", 3);
}

TEST_F(Processes, ShareTheWeightsOfOneMachine) {
  write({"write_weights"});
  for (const int world : {2, 3}) expect_all_right("share_weights", world);
}

TEST_F(Processes, ReadTheWeightsOfTheirOwnStageAlone) {
  write({"write_weights"});
  for (const int world : {1, 2, 3}) expect_all_right("own_weights", world);
}

class Families : public Processes, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, Families,
                         ::testing::Values("GPT2ForSequenceClassification", "GPT2LMHeadModel",
                                           "LlamaForCausalLM", "MistralModel", "Qwen3ForCausalLM",
                                           "BloomForCausalLM", "BertForMaskedLM",
                                           "BertForSequenceClassification", "BertModel"));

TEST_F(Processes, GenerateWhatOneProcessGenerates) {
  const std::vector<std::pair<const char*, std::vector<int>>> cases{
      {"LlamaForCausalLM", {1, 2, 3}}, {"MistralForCausalLM", {2}}, {"GPT2LMHeadModel", {3}}};
  for (const auto& [model, worlds] : cases) {
    write({"write_model", model});
    for (const int world : worlds) expect_all_right("generation", world);
  }
}

TEST_P(Families, GiveTheBitsOfOneProcess) {
  write({"write_model", GetParam()});
  expect_all_right("family", 3);
}

}  // namespace
}  // namespace haul
