// Models whose layers are shared by real processes on this machine.

#include "haul/torch/tensor_parallel_model.h"
#include "tests/distributed/parallel/processes.h"

namespace haul {
namespace {

using test::Processes;

class SharedFamilies : public Processes, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, SharedFamilies,
                         ::testing::Values("LlamaForCausalLM", "MistralForCausalLM",
                                           "Qwen2ForCausalLM", "Qwen3ForSequenceClassification",
                                           "GPT2LMHeadModel", "BloomForCausalLM",
                                           "BertForMaskedLM"));

TEST_P(SharedFamilies, GiveTheLogitsOfOneProcess) {
  write({"write_model", GetParam(), "shared"});
  for (const int world : {1, 2, 3, 4}) expect_all_right("share_layers", world);
}

TEST_F(Processes, ThatShareLayersGenerateWhatOneGenerates) {
  const std::vector<std::pair<const char*, std::vector<int>>> cases{
      {"LlamaForCausalLM", {1, 2, 3}}, {"MistralForCausalLM", {2}}, {"Qwen2ForCausalLM", {3}},
      {"Qwen3ForCausalLM", {2}},       {"GPT2LMHeadModel", {2, 4}}, {"BloomForCausalLM", {3}}};
  for (const auto& [model, worlds] : cases) {
    SCOPED_TRACE(model);
    write({"write_model", model, "shared"});
    for (const int world : worlds) expect_all_right("share_generation", world);
  }
}

TEST_F(Processes, ThatShareLayersReadTheirOwnRowsAlone) {
  for (const char* const model : {"LlamaForCausalLM", "GPT2LMHeadModel"}) {
    SCOPED_TRACE(model);
    write({"write_model", model, "large"});
    for (const int world : {2, 4}) expect_all_right("read_own_rows", world);
  }
}

TEST_F(Processes, CannotShareHeadsThatTheyDoNotDivide) {
  write({"write_model", "LlamaForCausalLM"});
  for (const int world : {3, 4}) expect_all_right("refuse_to_share", world);
}

TEST_F(Processes, ThatShareLayersDoNotWaitForOneThatEnds) {
  write({"write_model", "LlamaForCausalLM", "shared"});
  expect_all_right("die_in_a_shared_pass", 3);
}

}  // namespace
}  // namespace haul
