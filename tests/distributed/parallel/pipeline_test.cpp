// Pipelines of real processes on this machine.

#include "haul/torch/pipeline.h"

#include "tests/distributed/parallel/processes.h"

namespace haul {
namespace {

using test::Processes;

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
