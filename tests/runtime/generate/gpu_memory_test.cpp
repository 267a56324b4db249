// A GPU whose memory somebody else takes: it is told with the plan's numbers, nothing of what was
// taken stays, and the process goes on when there is memory again.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/place/words.h"
#include "haul/torch/model.h"
#include "tests/support/expect_error.h"
#include "tests/support/gpu_families.h"
#include "tests/support/gpu_hog.h"

namespace haul {
namespace {

using test::budget_without;
using test::expect_error;
using test::free_without_pools;
using test::Hog;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

auto told(const Plan& plan) {
  const PlanDevice& device = test::gpu_of(plan);
  return AllOf(HasSubstr("not enough memory"),
               HasSubstr("GPU 0: planned were " + format_bytes(device.used()) + " of " +
                         format_bytes(*device.budget) + ": weights " +
                         format_bytes(device.weights + device.margins)),
               HasSubstr("slots " + format_bytes(device.slots)), HasSubstr("free: "),
               Not(HasSubstr("\\x0a")));
}

void expect_within_plan(const LoadedModel& model) {
  bool found = false;
  for (const TierUse& tier : model.report().tiers) {
    if (tier.tier != core::device_words(gpu(0))) continue;
    found = true;
    EXPECT_LE(tier.peak, tier.planned);
  }
  EXPECT_TRUE(found);
}

class GpuMemory : public testing::Test {
 protected:
  GpuMemory() {
    test::write_model(folder.path(), test::kSmallModels[2].config);
    test::write_gpu_profile(folder.path() / "profile.json", 1);
    options.log = [](const std::string&) {};
    options.context = 96;
    options.batch = 8;
    options.max_memory = parse_max_memory("0=10GB");
  }

  LoadedModel load() const { return load_model(folder.path().string(), options); }

  static std::vector<std::vector<TokenId>> ids_of(LoadedModel& model) {
    GenerateOptions generate;
    generate.temperature = 0;
    generate.max_new_tokens = 12;
    // So many that torch has to ask the GPU for their activations.
    const std::vector<std::vector<TokenId>> prompts(8, std::vector<TokenId>(80, 7));
    std::vector<std::vector<TokenId>> ids;
    for (const Generated& one : model.generate_batch(prompts, generate)) ids.push_back(one.ids);
    return ids;
  }

  test::TemporaryFolder folder{std::filesystem::current_path()};
  ModelOptions options;
};

TEST_F(GpuMemory, ThatIsNotThereIsToldAndTheProcessGoesOn) {
  std::vector<std::vector<TokenId>> ids;
  for (const bool resident : {true, false}) {
    SCOPED_TRACE(resident ? "all on the GPU" : "some of it in RAM");
    LoadedModel model = load();
    if (resident) ids = ids_of(model);
    EXPECT_EQ(ids_of(model), ids);
    {
      const Hog hog;
      const auto fail = [&] {
        expect_error(ErrorKind::kResource, told(model.plan()), [&] { ids_of(model); });
        expect_error(ErrorKind::kResource, told(model.plan()), [&] { load(); });
      };
      fail();
      const Bytes free = free_without_pools();
      for (int again = 0; again < 3; ++again) fail();
      EXPECT_EQ(free_without_pools(), free) << "something stayed";
    }
    EXPECT_EQ(ids_of(model), ids);
    expect_within_plan(model);
    LoadedModel another = load();
    EXPECT_EQ(ids_of(another), ids);
    EXPECT_EQ(another.report().bytes_moved > 0, !resident);
    options.max_memory = {budget(gpu(0), budget_without(model.plan(), 0.5)),
                          budget(kCpuDevice, 10 * kGiB)};
  }
}

// More or less of it.
TEST_F(GpuMemory, IsToldWhereverItEnds) {
  LoadedModel first = load();
  const auto ids = ids_of(first);
  const Bytes free = free_without_pools();
  int failed = 0;
  int went = 0;
  for (Bytes left = 0; left <= 160 * kMiB; left += 8 * kMiB) {
    SCOPED_TRACE(format_bytes(left));
    LoadedModel model = load();  // of which nothing is recorded yet
    {
      const Hog hog(left);
      try {
        EXPECT_EQ(ids_of(model), ids);
        ++went;
      } catch (const Error& error) {
        EXPECT_THAT(std::string(error.what()), told(model.plan()));
        ++failed;
      }
    }
    EXPECT_EQ(ids_of(model), ids);
    EXPECT_GT(model.figures().replayed, 0);
    expect_within_plan(model);
  }
  EXPECT_GE(free_without_pools(), free) << "something stayed";
  EXPECT_GT(failed, 0);
  EXPECT_GT(went, 0);
}

// A token is a word, so that each has a text as soon as it comes.
void write_words(const std::filesystem::path& file, int count) {
  std::string words;
  for (int i = 0; i < count; ++i) words += fmt::format("{}\"w{}\": {}", i > 0 ? ", " : "", i, i);
  std::ofstream(file) << R"({"model": {"type": "WordLevel", "unk_token": "w0", "vocab": {)" << words
                      << R"(}}, "pre_tokenizer": {"type": "Whitespace"}})";
}

TEST_F(GpuMemory, ThatARecordingLacksIsTold) {
  write_words(folder.path() / "tokenizer.json", 3000);
  LoadedModel model = load();
  GenerateOptions generate;
  generate.temperature = 0;
  generate.repetition_penalty = 1.1;  // no pass begins before the token before it is known
  generate.max_new_tokens = 12;
  const std::vector<TokenId> prompt(80, 7);
  // The first pass of a model is run as it is, the next one is recorded.
  for (const int last : {2, 1}) {
    std::optional<Hog> hog;
    int texts = 0;
    const auto take_all = [&](std::string_view) {
      if (++texts == last) hog.emplace();
    };
    expect_error(ErrorKind::kResource, told(model.plan()),
                 [&] { model.generate(prompt, generate, take_all); });
    EXPECT_EQ(model.figures().replayed, last);
  }
  options.graphs = false;
  EXPECT_EQ(model.generate(prompt, generate).ids, load().generate(prompt, generate).ids);
  EXPECT_EQ(model.figures().replayed, 11);
  expect_within_plan(model);
}

class GpuMemoryOfFamilies : public test::GpuFamily {};

TEST_P(GpuMemoryOfFamilies, ThatIsNotThereIsTold) {
  constexpr std::int64_t kBatch = 8;
  const at::Tensor ids = at::randint(3, 2900, {kBatch, test::kFamilyContext}, at::kLong);
  ModelOptions asked = options("0=10GB,cpu=10GB");
  asked.batch = kBatch;
  const Plan resident = load_model(folder.path().string(), asked).plan();
  const std::string some = "0=" + std::to_string(budget_without(resident, 0.4));
  at::Tensor expected;
  for (const std::string& memory : {std::string("0=10GB,cpu=10GB"), some + ",cpu=10GB", some}) {
    SCOPED_TRACE(memory);
    asked.max_memory = parse_max_memory(memory);
    LoadedModel model = load_model(folder.path().string(), asked);
    if (!expected.defined()) expected = model.forward(ids);
    {
      const Hog hog;
      expect_error(ErrorKind::kResource, told(model.plan()), [&] { model.forward(ids); });
    }
    EXPECT_TRUE(model.forward(ids).equal(expected));
    expect_within_plan(model);
  }
}

std::vector<test::Family> all_families() {
  std::vector<test::Family> result = test::families();
  std::erase_if(result, [](const test::Family& family) { return family.name.ends_with("64"); });
  return result;
}

INSTANTIATE_TEST_SUITE_P(All, GpuMemoryOfFamilies,
                         testing::Combine(testing::ValuesIn(all_families()),
                                          testing::Values(Dtype::kF32)),
                         test::family_name);

class GpuMemoryWithHelp : public test::GpuFamily {};

// While the CPU helps, with weights on their way, more or less of it.
TEST_P(GpuMemoryWithHelp, IsToldWhereverItEnds) {
  const Plan resident = load_model(folder.path().string(), options("0=10GB,cpu=10GB")).plan();
  test::write_gpu_profile(folder.path() / "profile.json", 2.5e10);
  ModelOptions asked = options("0=" + std::to_string(budget_without(resident, 0.75)) + ",cpu=10GB");
  LoadedModel model = load_model(folder.path().string(), asked);
  EXPECT_GT(model.plan().cpu_share, 0.1);
  GenerateOptions generate;
  generate.temperature = 0;
  generate.max_new_tokens = 8;
  const auto ids_of = [&](std::size_t length) {
    return model.generate(std::vector<TokenId>(length, 7), generate).ids;
  };
  const auto ids = ids_of(1);  // the CPU helps from the first pass on
  const auto others = ids_of(80);
  int failed = 0;
  int went = 0;
  for (Bytes left = 0; left <= 64 * kMiB; left += 8 * kMiB) {
    SCOPED_TRACE(format_bytes(left));
    {
      const Hog hog(left);
      try {
        EXPECT_EQ(ids_of(1), ids);
        EXPECT_EQ(ids_of(80), others);
        ++went;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kResource);
        EXPECT_THAT(std::string(error.what()), told(model.plan()));
        ++failed;
      }
    }
    EXPECT_EQ(ids_of(80), others);  // needs more than before
    EXPECT_EQ(ids_of(1), ids);
  }
  expect_within_plan(model);
  EXPECT_GT(failed, 0);
  EXPECT_GT(went, 0);
}

INSTANTIATE_TEST_SUITE_P(All, GpuMemoryWithHelp,
                         test::in_both_dtypes(test::large_families({"llama", "bloom"})),
                         test::family_name);

TEST(GpuMemoryOfSentences, ThatIsNotThereIsTold) {
  const test::TemporaryFolder folder{std::filesystem::current_path()};
  test::write_model(folder.path(), R"({"architectures": ["BertModel"], "model_type": "bert",
    "hidden_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 16,
    "intermediate_size": 4096, "vocab_size": 3000, "max_position_embeddings": 512})");
  test::write_gpu_profile(folder.path() / "profile.json", 1);
  ModelOptions options;
  options.log = [](const std::string&) {};
  options.context = 512;
  options.max_memory = parse_max_memory("0=10GB");
  LoadedModel model = load_model(folder.path().string(), options);
  const std::vector<TokenId> ids(512, 7);
  const std::vector<float> expected = model.embed(ids);
  {
    const Hog hog;
    expect_error(ErrorKind::kResource, told(model.plan()), [&] { model.embed(ids); });
  }
  EXPECT_EQ(model.embed(ids), expected);
  expect_within_plan(model);
}

}  // namespace
}  // namespace haul
