// A small Llama from its files to its tokens.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <torch/utils.h>

#include "core/describe/describe.h"
#include "haul/estimate.h"
#include "haul/torch/dispatch.h"
#include "haul/torch/model.h"
#include "models/families/model.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace haul {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Lt;
using testing::SizeIs;

constexpr TokenId kVocabulary = 61;

std::string config(const std::string& name = "Llama", const std::string& type = "llama") {
  return R"({"architectures": [")" + name + R"(ForCausalLM"], "model_type": ")" + type + R"(",
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 61, "max_position_embeddings": 64,
    "sliding_window": 6, "tie_word_embeddings": false, "dtype": "float32"})";
}

// Writes a model of random weights; in several files where `shard` is less than all of it.
void write_model(const fs::path& folder, const std::string& text, Bytes shard = 10'000'000) {
  const core::Json json = core::parse_json(text, "config.json");
  const Description description = core::describe_config(json, "config.json");
  torch::manual_seed(3);
  const auto model = models::make_model(core::ConfigReader(json, "config.json"), description);
  save_model(ModelRef(*model), folder, shard);
  std::ofstream(folder / "config.json") << text;
}

ModelOptions quiet() {
  ModelOptions options;
  options.log = [](const std::string&) {};
  return options;
}

GenerateOptions tokens(std::int64_t count) {
  GenerateOptions options;
  options.max_new_tokens = count;
  return options;
}

const std::vector<TokenId> kPrompt = {5, 17, 2, 40, 11};

class LoadModel : public testing::Test {
 protected:
  void write(Bytes shard = 10'000'000) const { write_model(folder.path(), config(), shard); }
  LoadedModel load(const ModelOptions& options = quiet()) const {
    return load_model(folder.path().string(), options);
  }

  test::TemporaryFolder folder;
};

// The likeliest token after each pass over everything, without a cache.
std::vector<TokenId> without_cache(LoadedModel& model, std::vector<TokenId> ids, int count) {
  std::vector<TokenId> result;
  for (int i = 0; i < count; ++i) {
    const std::vector<std::int64_t> numbers(ids.begin(), ids.end());
    const at::Tensor logits = model.forward(at::tensor(numbers, at::kLong).unsqueeze(0));
    ids.push_back(static_cast<TokenId>(logits[0][-1].argmax().item<std::int64_t>()));
    result.push_back(ids.back());
  }
  return result;
}

TEST_F(LoadModel, GeneratesFromIdsWithoutATokenizerAndMayBeCalledAgain) {
  write();
  LoadedModel model = load();
  EXPECT_EQ(model.description().architecture, "LlamaForCausalLM");
  EXPECT_EQ(model.context(), 64);
  const Generated first = model.generate(kPrompt, tokens(20));
  EXPECT_EQ(first.ids, without_cache(model, kPrompt, 20));
  EXPECT_EQ(first.prompt_ids, kPrompt);
  EXPECT_EQ(first.text, "");
  EXPECT_EQ(first.reason, StopReason::kLength);
  EXPECT_EQ(model.figures().decoded, 19);
  EXPECT_EQ(model.generate(kPrompt, tokens(20)).ids, first.ids);
}

TEST_F(LoadModel, GivesTheSameTokensAndLogitsWithEverythingOnDisk) {
  write(20'000);
  LoadedModel whole = load();
  ModelOptions options = quiet();
  options.placement = DeviceMap{{"", kDiskDevice}};
  LoadedModel on_disk = load(options);
  EXPECT_EQ(on_disk.generate(kPrompt, tokens(30)).ids, whole.generate(kPrompt, tokens(30)).ids);
  const at::Tensor ids = at::tensor({1L, 2L, 3L, 60L}, at::kLong).unsqueeze(0);
  EXPECT_TRUE(at::equal(on_disk.forward(ids), whole.forward(ids)));
  EXPECT_GT(on_disk.report().bytes_moved, whole.report().bytes_moved);
}

TEST_F(LoadModel, LooksUpATableOnDiskThatMemoryHasNoRoomFor) {
  std::string text = config();
  text.replace(text.find("\"vocab_size\": 61"), 16, "\"vocab_size\": 9000");
  write_model(folder.path(), text);
  LoadedModel whole = load();
  const Bytes table = whole.plan().steps.front().weights / 3;  // and the head; the rest is small
  ModelOptions options = quiet();
  options.max_memory = {budget(kCpuDevice, whole.plan().devices.front().used() - table / 2)};
  LoadedModel short_of_memory = load(options);
  ASSERT_TRUE(short_of_memory.plan().steps.front().looked_up);
  const Generated found = short_of_memory.generate(kPrompt, tokens(30));
  EXPECT_EQ(found.ids, whole.generate(kPrompt, tokens(30)).ids);
  EXPECT_LE(short_of_memory.report().bytes_moved, 35U * 32 * sizeof(float)) << "rows of 35 tokens";
  EXPECT_GT(short_of_memory.report().bytes_moved, 0U);
}

TEST_F(LoadModel, ABatchOfDifferentLengthsGivesWhatEachGivesAlone) {
  write();
  LoadedModel model = load();
  const std::vector<std::vector<TokenId>> prompts = {{9}, kPrompt, {1, 2, 3}};
  const std::vector<Generated> together = model.generate_batch(prompts, tokens(12));
  ASSERT_THAT(together, SizeIs(3));
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(together[i].ids, model.generate(prompts[i], tokens(12)).ids) << i;
    EXPECT_EQ(together[i].prompt_ids, prompts[i]);
  }
}

// So many that not all are read at once.
TEST_F(LoadModel, ABatchThatIsReadInPartsGivesWhatEachGivesAlone) {
  write();
  ModelOptions options = quiet();
  options.batch = 256;
  LoadedModel planned = load(options);
  ASSERT_EQ(prompt_part(256, planned.context(), 49).rows, 167);
  std::vector<std::vector<TokenId>> prompts(256);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    for (std::size_t k = 0; k < 30 + i % 20; ++k) {
      prompts[i].push_back(static_cast<TokenId>((7 * i + k * k) % kVocabulary));
    }
  }
  const std::vector<Generated> together = planned.generate_batch(prompts, tokens(8));
  // Planned for 256, of which a few are left.
  const std::vector<Generated> rest =
      planned.generate_batch({prompts.end() - 3, prompts.end()}, tokens(8));
  LoadedModel alone = load();
  for (std::size_t i = 1; i < prompts.size(); i += 51) {
    EXPECT_EQ(together[i].ids, alone.generate(prompts[i], tokens(8)).ids) << i;
  }
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(rest[i].ids, together[253 + i].ids) << i;
}

TEST_F(LoadModel, APlanForAGpuThatIsNotThereIsToldBeforeAnythingIsRead) {
  write();
  Plan plan = load().plan();
  plan.kv_in_ram = true;
  ModelOptions options = quiet();
  options.placement = plan;
  test::expect_error(ErrorKind::kUsage, HasSubstr("keeps keys and values in RAM"),
                     [&] { load(options); });
}

TEST_F(LoadModel, BeamsFindWhatIsAtLeastAsLikelyAndTheirRoomIsPlanned) {
  write();
  ModelOptions room = quiet();
  room.num_beams = 4;
  LoadedModel model = load(room);
  EXPECT_EQ(model.plan().batch, 4);
  GenerateOptions options = tokens(8);
  const std::vector<TokenId> greedy = model.generate(kPrompt, options).ids;
  options.num_beams = 4;
  const Generated best = model.generate(kPrompt, options);
  EXPECT_THAT(best.ids, SizeIs(8));
  EXPECT_EQ(best.prompt_ids, kPrompt);
  EXPECT_EQ(best.reason, StopReason::kLength);
  EXPECT_EQ(model.figures().decoded, 7);
  const auto likelihood = [&](const std::vector<TokenId>& ids) {
    std::vector<std::int64_t> all(kPrompt.begin(), kPrompt.end());
    all.insert(all.end(), ids.begin(), ids.end());
    const at::Tensor chances =
        model.forward(at::tensor(all, at::kLong).unsqueeze(0))[0].log_softmax(-1);
    double sum = 0;
    for (std::size_t i = kPrompt.size(); i < all.size(); ++i) {
      sum += chances[static_cast<std::int64_t>(i) - 1][all[i]].item<double>();
    }
    return sum;
  };
  EXPECT_GE(likelihood(best.ids), likelihood(greedy) - 1e-4);
  const auto together = model.generate_batch({{9}, kPrompt}, options);
  EXPECT_EQ(together.at(1).ids, best.ids);
}

TEST_F(LoadModel, BeamsGoNeitherWithSamplingNorWithStopStrings) {
  write();
  LoadedModel model = load();
  GenerateOptions options = tokens(3);
  options.num_beams = 2;
  options.stop = {"x"};
  EXPECT_THROW(model.generate(kPrompt, options), Error);
  options.stop = {};
  options.temperature = 1;
  test::expect_error(ErrorKind::kUnsupported, HasSubstr("2 beams"),
                     [&] { model.generate(kPrompt, options); });
  const std::atomic<bool> cancel{true};
  options.temperature = 0;
  options.cancel = &cancel;
  EXPECT_EQ(model.generate(kPrompt, options).reason, StopReason::kCancelled);
}

TEST_F(LoadModel, APaddingTokenBeyondTheVocabularyDoesNoHarm) {
  write();
  folder.write("generation_config.json", R"({"pad_token_id": 61, "eos_token_id": 4000})");
  LoadedModel model = load();
  const auto together = model.generate_batch({{9}, kPrompt}, tokens(6));
  EXPECT_EQ(together.at(0).ids, model.generate(std::vector<TokenId>{9}, tokens(6)).ids);
}

TEST_F(LoadModel, ABatchOfNoneGivesNone) {
  write();
  LoadedModel model = load();
  EXPECT_THAT(model.generate_batch({}, tokens(3)), SizeIs(0));
}

TEST_F(LoadModel, AWindowGivesTheSameWithTheCacheAsWithout) {
  write_model(folder.path(), config("Mistral", "mistral"));
  LoadedModel model = load();
  EXPECT_EQ(model.description().architecture, "MistralForCausalLM");
  EXPECT_EQ(model.generate(kPrompt, tokens(30)).ids, without_cache(model, kPrompt, 30));
  const std::vector<TokenId> longer = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  EXPECT_EQ(model.generate(longer, tokens(30)).ids, without_cache(model, longer, 30));
}

TEST_F(LoadModel, SeedsReproduceAndDiffer) {
  write();
  LoadedModel model = load();
  GenerateOptions options = tokens(30);
  options.temperature = 2;
  options.seed = 4;
  const auto first = model.generate(kPrompt, options).ids;
  EXPECT_THAT(first, Each(Lt(kVocabulary)));
  EXPECT_EQ(model.generate(kPrompt, options).ids, first);
  EXPECT_EQ(load().generate(kPrompt, options).ids, first);
  options.seed = 5;
  EXPECT_NE(model.generate(kPrompt, options).ids, first);
}

TEST_F(LoadModel, EndsAtAStopTokenAndGivesIt) {
  write();
  LoadedModel model = load();
  const auto all = model.generate(kPrompt, tokens(20)).ids;
  GenerateOptions options = tokens(20);
  options.stop_tokens = {all[7]};
  const auto end = std::find(all.begin(), all.end(), all[7]) + 1;
  const Generated stopped = model.generate(kPrompt, options);
  EXPECT_EQ(stopped.ids, std::vector(all.begin(), end));
  EXPECT_EQ(stopped.reason, StopReason::kStopToken);
}

TEST_F(LoadModel, FollowsItsGenerationConfig) {
  write();
  const auto all = load().generate(kPrompt, tokens(20)).ids;
  folder.write("generation_config.json", R"({"max_new_tokens": 4})");
  EXPECT_EQ(load().generate(kPrompt).ids, std::vector(all.begin(), all.begin() + 4));
  EXPECT_EQ(load().generate(kPrompt, tokens(6)).ids, std::vector(all.begin(), all.begin() + 6));
  folder.write("generation_config.json", R"({"max_length": 12})");
  EXPECT_EQ(load().generate(kPrompt).ids, std::vector(all.begin(), all.begin() + 7));
  EXPECT_EQ(load().generate(kPrompt, tokens(9)).ids, std::vector(all.begin(), all.begin() + 9));
  folder.write("generation_config.json", R"({"max_length": "long"})");
  test::expect_error(ErrorKind::kCorrupt,
                     AllOf(HasSubstr("generation_config.json"), HasSubstr("max_length")),
                     [&] { load(); });
}

TEST_F(LoadModel, WithoutALimitTheContextIsFilled) {
  write();
  ModelOptions options = quiet();
  options.context = 16;
  const Generated generated = load(options).generate(kPrompt);
  EXPECT_EQ(generated.ids.size() + kPrompt.size(), 16U);
  EXPECT_EQ(generated.reason, StopReason::kLength);
}

TEST_F(LoadModel, CancelFromAnotherThreadEndsItAndTheNextCallWorks) {
  write();
  ModelOptions longer = quiet();
  longer.context = 50'000;
  LoadedModel model = load(longer);
  std::atomic<bool> cancel{false};
  GenerateOptions options;
  options.cancel = &cancel;
  auto other = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    cancel = true;
  });
  const Generated ended = model.generate(kPrompt, options);
  other.get();
  EXPECT_EQ(ended.reason, StopReason::kCancelled);
  EXPECT_LT(ended.ids.size(), 49'000U);
  cancel = false;
  options.max_new_tokens = 5;
  const Generated again = model.generate(kPrompt, options);
  EXPECT_EQ(again.reason, StopReason::kLength);
  EXPECT_THAT(again.ids, SizeIs(5));
}

TEST_F(LoadModel, CancelledBeforeItBeganGivesNoToken) {
  write();
  const std::atomic<bool> cancel{true};
  GenerateOptions options;
  options.cancel = &cancel;
  const Generated generated = load().generate(kPrompt, options);
  EXPECT_EQ(generated.reason, StopReason::kCancelled);
  EXPECT_THAT(generated.ids, SizeIs(0));
}

TEST_F(LoadModel, APromptThatLeavesNoRoomInTheContextIsAnError) {
  write();
  LoadedModel model = load();
  const std::vector<TokenId> full(64, 1);
  test::expect_error(ErrorKind::kUsage, AllOf(HasSubstr("64 tokens"), HasSubstr("context 64")),
                     [&] { model.generate(full); });
  EXPECT_THAT(model.generate(std::span(full).first(63)).ids, SizeIs(1));
}

TEST_F(LoadModel, PromptsThatMakeNoSenseAreErrorsAndTheModelStaysUsable) {
  write();
  LoadedModel model = load();
  test::expect_error(ErrorKind::kUsage, HasSubstr("no prompt"),
                     [&] { model.generate(std::vector<TokenId>()); });
  test::expect_error(ErrorKind::kUsage, AllOf(HasSubstr("61"), HasSubstr("vocabulary")), [&] {
    model.generate(std::vector<TokenId>{1, kVocabulary});
  });
  test::expect_error(ErrorKind::kUsage, HasSubstr("vocabulary"), [&] {
    model.forward(at::tensor({1L, -1L}, at::kLong).unsqueeze(0));
  });
  test::expect_error(ErrorKind::kUsage, HasSubstr("new token"),
                     [&] { model.generate(kPrompt, tokens(0)); });
  EXPECT_THAT(model.generate(kPrompt, tokens(2)).ids, SizeIs(2));
}

TEST_F(LoadModel, TextWithoutATokenizerIsAnErrorThatNamesTheFolder) {
  write();
  LoadedModel model = load();
  test::expect_error(ErrorKind::kNotFound, HasSubstr(folder.path().string()),
                     [&] { model.generate("Hello"); });
  GenerateOptions options = tokens(2);
  options.stop = {"x"};
  test::expect_error(ErrorKind::kNotFound, HasSubstr(folder.path().string()),
                     [&] { model.generate(kPrompt, options); });
}

TEST_F(LoadModel, AContextBelowOneIsAnError) {
  write();
  ModelOptions options = quiet();
  options.context = 0;
  test::expect_error(ErrorKind::kUsage,
                     AllOf(HasSubstr("context of 0"), testing::Not(HasSubstr("1 to 0"))),
                     [&] { load(options); });
}

TEST_F(LoadModel, AFolderWithoutConfigIsAnErrorThatNamesIt) {
  write();
  fs::remove(folder.path() / "config.json");
  test::expect_error(ErrorKind::kNotFound,
                     AllOf(HasSubstr(folder.path().string()), HasSubstr("config.json")),
                     [&] { load(); });
}

TEST_F(LoadModel, AFolderWithoutWeightsIsAnErrorThatNamesIt) {
  folder.write("config.json", config());
  test::expect_error(ErrorKind::kNotFound,
                     AllOf(HasSubstr(folder.path().string()), HasSubstr("no checkpoint")),
                     [&] { load(); });
}

TEST_F(LoadModel, AShardThatIsMissingIsNamed) {
  write(20'000);
  fs::path shard;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    if (entry.path().filename().string().starts_with("model-00002-of")) shard = entry.path();
  }
  ASSERT_TRUE(fs::remove(shard));
  test::expect_error(ErrorKind::kNotFound, HasSubstr(shard.filename().string()), [&] { load(); });
}

TEST_F(LoadModel, AFileThatEndsEarlyIsNamed) {
  write();
  const fs::path file = folder.path() / "model.safetensors";
  for (const std::uintmax_t size :
       {fs::file_size(file) - 4, std::uintmax_t{300}, std::uintmax_t{3}}) {
    fs::resize_file(file, size);
    test::expect_error(ErrorKind::kCorrupt, HasSubstr("model.safetensors"), [&] { load(); });
  }
}

TEST_F(LoadModel, AnArchitectureThatIsNotKnownSaysWhichAreAndWhatStillWorks) {
  write();
  folder.write("config.json", R"({"architectures": ["FrobnicateForCausalLM"],
                                  "model_type": "frobnicate"})");
  try {
    load();
    FAIL() << "no error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("FrobnicateForCausalLM"));
    EXPECT_THAT(error.hint(), AllOf(HasSubstr("LlamaForCausalLM"), HasSubstr("T5"),
                                    HasSubstr("estimate"), HasSubstr("plan")));
  }
}

}  // namespace
}  // namespace haul
