// Every family on a GPU, with its weights there, in RAM and on disk: what all of it on the GPU
// gives, bit by bit; about what the CPU gives; in the memory that the plan says.

#include <cstdlib>
#include <fstream>

#include <ATen/TensorOperators.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include "haul/torch/model.h"
#include "runtime/tiers/gpu.h"
#include "tests/support/small_models.h"
#include "tests/support/temporary_folder.h"

namespace haul {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kContext = 96;
constexpr TokenId kPrompt = 7;

// A machine on which nobody would let the CPU compute, but for the rows that it helps with.
void write_profile(const fs::path& path, double help) {
  Profile profile;
  profile.ram_bandwidth = 1e6;
  profile.help_bandwidth = help;
  std::ofstream(path) << haul::write_profile(profile);
  ::setenv("HAUL_PROFILE", path.c_str(), 1);
}

const PlanDevice& gpu_of(const Plan& plan) {
  for (const PlanDevice& device : plan.devices) {
    if (device.device == gpu(0)) return device;
  }
  throw std::runtime_error("a plan without a GPU");
}

struct Answers {
  at::Tensor logits;         // of two sequences
  std::vector<TokenId> ids;  // greedy
  DispatchReport report;
  Plan plan;
};

class GpuFamilies : public testing::TestWithParam<std::tuple<test::SmallModel, Dtype>> {
 protected:
  GpuFamilies() {
    test::write_model(folder.path(), std::get<0>(GetParam()).config);
    write_profile(folder.path() / "profile.json", 1);
  }

  ModelOptions options(const std::string& memory) const {
    ModelOptions result;
    result.log = [](const std::string&) {};
    result.context = kContext;
    result.dtype = std::get<1>(GetParam());
    result.offload_folder = folder.path() / "offload";
    result.max_memory = parse_max_memory(memory);
    return result;
  }
  Answers answers(const ModelOptions& options) const {
    torch::manual_seed(5);
    const at::Tensor ids = at::randint(3, 2900, {2, 12}, at::kLong);
    LoadedModel model = load_model(folder.path().string(), options);
    Answers result;
    result.logits = model.forward(ids);
    if (model.task() == Task::kGenerate) {
      GenerateOptions generate;
      generate.temperature = 0;
      generate.max_new_tokens = 24;
      result.ids = model.generate(std::vector<TokenId>(8, kPrompt), generate).ids;
    }
    result.report = model.report();
    result.plan = model.plan();
    return result;
  }
  // So that a part of the weights does not fit onto the GPU.
  std::string budget_for(const Plan& resident, double share, const std::string& others) const {
    const PlanDevice& device = gpu_of(resident);
    const auto weights = static_cast<Bytes>(share * static_cast<double>(device.weights));
    return "0=" + std::to_string(device.used() - device.weights + weights) + others;
  }

  test::TemporaryFolder folder{fs::current_path()};
};

double largest(const at::Tensor& tensor) {
  return tensor.abs().max().item<double>();
}

TEST_P(GpuFamilies, GiveTheSameWhereverTheirWeightsLie) {
  const Answers cpu = answers(options("cpu=10GB"));
  const Answers resident = answers(options("0=10GB,cpu=10GB"));
  EXPECT_EQ(resident.report.bytes_moved, 0U);
  const double bound = std::get<1>(GetParam()) == Dtype::kF32 ? 1e-4 : 0.04;
  EXPECT_LE(largest(resident.logits - cpu.logits), bound * largest(cpu.logits));
  for (const char* others : {",cpu=10GB", ""}) {
    SCOPED_TRACE(*others != '\0' ? "the rest in RAM" : "the rest on disk");
    const Answers away = answers(options(budget_for(resident.plan, 0.6, others)));
    EXPECT_GT(away.report.bytes_moved, 0U);
    EXPECT_TRUE(away.logits.equal(resident.logits));
    EXPECT_EQ(away.ids, resident.ids);
    for (const TierUse& tier : away.report.tiers) {
      if (tier.tier != "GPU 0") continue;
      EXPECT_LE(tier.peak, tier.planned);
      EXPECT_GE(static_cast<double>(tier.peak), 0.98 * static_cast<double>(tier.planned));
    }
  }
}

TEST_P(GpuFamilies, GiveTheSameWithGraphsAndWithout) {
  ModelOptions with = options("0=10GB,cpu=10GB");
  const Answers recorded = answers(with);
  with.graphs = false;
  const Answers plain = answers(with);
  EXPECT_TRUE(recorded.logits.equal(plain.logits));
  EXPECT_EQ(recorded.ids, plain.ids);
}

// A batch of which a GPU cannot remember all, in three parts, with padding and without.
class GpuKvInRam : public GpuFamilies {};

TEST_P(GpuKvInRam, GivesTheSame) {
  constexpr std::int64_t kBatch = 200;
  ModelOptions asked = options("0=10GB,cpu=10GB");
  asked.batch = kBatch;
  asked.graphs = false;
  std::vector<std::vector<TokenId>> prompts(kBatch);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    for (std::size_t k = 0; k < 70; ++k) {
      prompts[i].push_back(static_cast<TokenId>(3 + (31 * i + k * k) % 2900));
    }
  }
  std::vector<std::vector<TokenId>> padded = prompts;
  for (std::size_t i = 0; i < padded.size(); ++i) padded[i].resize(70 - i % 40);
  const auto run = [&](const ModelOptions& how, Plan* plan) {
    LoadedModel model = load_model(folder.path().string(), how);
    *plan = model.plan();
    std::vector<std::vector<TokenId>> found;
    GenerateOptions generate;
    generate.temperature = 0;
    generate.max_new_tokens = 12;
    for (const auto* some : {&prompts, &padded, &prompts}) {
      for (const Generated& one : model.generate_batch(*some, generate)) found.push_back(one.ids);
    }
    generate.num_beams = 2;
    for (const Generated& one : model.generate_batch({prompts[0], prompts[1]}, generate)) {
      found.push_back(one.ids);
    }
    return found;
  };
  Plan resident;
  const auto expected = run(asked, &resident);
  ASSERT_FALSE(resident.kv_in_ram);
  Plan apart = resident;
  apart.kv_in_ram = true;
  Bytes kv = 0;
  for (PlanDevice& device : apart.devices) {
    if (device.device == gpu(0))
      kv = std::exchange(device.kv, device.kv / 2);  // two of four layers
  }
  for (PlanDevice& device : apart.devices) {
    if (device.device == kCpuDevice) device.kv = kv;
  }
  asked.placement = apart;
  Plan plan;
  const auto found = run(asked, &plan);
  ASSERT_TRUE(plan.kv_in_ram);
  EXPECT_EQ(found, expected);
}

std::string name_of(const testing::TestParamInfo<std::tuple<test::SmallModel, Dtype>>& info) {
  return std::string(std::get<0>(info.param).name) + "_" +
         (std::get<1>(info.param) == Dtype::kF32 ? "F32" : "BF16");
}

INSTANTIATE_TEST_SUITE_P(All, GpuFamilies,
                         testing::Combine(testing::ValuesIn(test::kSmallModels),
                                          testing::Values(Dtype::kF32, Dtype::kBF16)),
                         name_of);

// Decoders that look at all tokens.
std::vector<test::SmallModel> without_windows() {
  std::vector<test::SmallModel> result;
  for (const test::SmallModel& small : test::kSmallModels) {
    for (const std::string_view name : {"gpt2", "llama", "qwen3", "bloom"}) {
      if (small.name == name) result.push_back(small);
    }
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(All, GpuKvInRam,
                         testing::Combine(testing::ValuesIn(without_windows()),
                                          testing::Values(Dtype::kF32, Dtype::kBF16)),
                         name_of);

// Matrices that are large enough to be worth it.
constexpr const char* kLlama = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 4,
  "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 3000,
  "max_position_embeddings": 128, "tie_word_embeddings": false})";

// Each way to choose tokens, twice with one model, with a pass that is recorded and without.
TEST(GpuGraphs, ChooseTheSameTokens) {
  const test::TemporaryFolder folder{fs::current_path()};
  test::write_model(folder.path(), kLlama);
  const auto run = [&](bool graphs, Dtype dtype) {
    ModelOptions options;
    options.log = [](const std::string&) {};
    options.context = kContext;
    options.batch = 4;
    options.dtype = dtype;
    options.graphs = graphs;
    options.max_memory = parse_max_memory("0=2GB,cpu=10GB");
    LoadedModel model = load_model(folder.path().string(), options);
    std::vector<std::vector<TokenId>> found;
    const auto keep = [&](const std::vector<Generated>& results) {
      for (const Generated& one : results) found.push_back(one.ids);
    };
    for (int time = 0; time < 2; ++time) {
      for (const double temperature : {0.0, 0.8}) {
        for (const double penalty : {1.0, 1.3}) {
          GenerateOptions generate;
          generate.temperature = temperature;
          generate.repetition_penalty = penalty;
          generate.max_new_tokens = 20;
          keep(model.generate_batch({std::vector<TokenId>(9, kPrompt)}, generate));
          keep(model.generate_batch({{7, 8, 9}, {10, 11, 12}, {1, 2, 3}}, generate));  // no padding
          keep(model.generate_batch({{7, 8, 9}, {10}}, generate));
          keep(model.generate_batch({{5}}, generate));
          generate.stop_tokens = {found[0][7]};
          keep(model.generate_batch({std::vector<TokenId>(9, kPrompt)}, generate));
          generate.max_new_tokens = 2;
          keep(model.generate_batch({std::vector<TokenId>(9, kPrompt)}, generate));
        }
      }
      GenerateOptions beams;
      beams.num_beams = 3;
      beams.max_new_tokens = 10;
      keep(model.generate_batch({std::vector<TokenId>(9, kPrompt)}, beams));
    }
    return found;
  };
  for (const Dtype dtype : {Dtype::kBF16, Dtype::kF32}) {
    const auto plain = run(false, dtype);
    EXPECT_EQ(run(true, dtype), plain);
    EXPECT_LT(plain[7].size(), plain[0].size());  // by the stop token
  }
}

// Prompts of which a few are read at a time, with a last part of one token.
TEST(GpuGraphs, AreOfAllSequences) {
  const test::TemporaryFolder folder{fs::current_path()};
  std::string config = kLlama;
  config.replace(config.find("128"), 3, "4096");
  test::write_model(folder.path(), config);
  std::vector<std::vector<TokenId>> prompts(8);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    for (std::size_t k = 0; k < 2049; ++k) {
      prompts[i].push_back(static_cast<TokenId>(3 + (31 * i + k * k) % 2900));
    }
  }
  const auto run = [&](bool graphs) {
    ModelOptions options;
    options.log = [](const std::string&) {};
    options.context = 2100;
    options.batch = 8;
    options.dtype = Dtype::kF32;
    options.graphs = graphs;
    options.max_memory = parse_max_memory("0=20GB,cpu=10GB");
    LoadedModel model = load_model(folder.path().string(), options);
    GenerateOptions generate;
    generate.temperature = 0;
    generate.max_new_tokens = 12;
    std::vector<std::vector<TokenId>> found;
    for (const Generated& one : model.generate_batch(prompts, generate)) found.push_back(one.ids);
    return found;
  };
  EXPECT_EQ(run(true), run(false));
}

// A table on disk, of which the CPU reads rows for layers on the GPU.
TEST(GpuLookup, GivesTheSame) {
  const test::TemporaryFolder folder{fs::current_path()};
  std::string config = test::kSmallModels[2].config;
  const std::string rows = "\"vocab_size\": 3000";
  config.replace(config.find(rows), rows.size(), rows + "0");
  test::write_model(folder.path(), config);
  ::setenv("HAUL_PROFILE", (folder.path() / "none.json").c_str(), 1);
  ModelOptions options;
  options.log = [](const std::string&) {};
  options.context = kContext;
  options.graphs = false;
  options.dtype = Dtype::kF32;
  options.max_memory = parse_max_memory("0=10GB,cpu=10GB");
  const auto run = [&] {
    LoadedModel model = load_model(folder.path().string(), options);
    GenerateOptions generate;
    generate.temperature = 0;
    generate.max_new_tokens = 24;
    std::vector<TokenId> prompt;
    for (TokenId i = 0; i < 40; ++i) prompt.push_back(3 + 711 * i);
    return std::tuple(model.generate(prompt, generate).ids, model.plan(), model.report());
  };
  const auto [expected, resident, nothing] = run();
  const PlanDevice& device = gpu_of(resident);
  options.max_memory = {budget(gpu(0), device.used() - device.weights / 2),
                        budget(kCpuDevice, device.activations + 10 * kMiB)};
  const auto [found, plan, report] = run();
  EXPECT_EQ(found, expected);
  EXPECT_TRUE(plan.steps.front().looked_up);
  EXPECT_LE(report.bytes_moved, 64U * 192 * sizeof(float)) << "rows of 64 tokens";
  EXPECT_EQ(report.unplanned, 0U);
}

TEST(GpuHelp, OfTheCpuLeavesTheWordsAsTheyAre) {
  const test::TemporaryFolder folder{fs::current_path()};
  test::write_model(folder.path(), kLlama);
  const auto run = [&](double help, std::int64_t batch) {
    write_profile(folder.path() / "profile.json", help);
    ModelOptions options;
    options.log = [](const std::string&) {};
    options.context = kContext;
    options.batch = batch;
    options.dtype = Dtype::kF32;
    options.max_memory = parse_max_memory("0=2GB,cpu=10GB");
    Plan plan;
    options.on_plan = [&](const Plan& made) { plan = made; };
    {  // a budget that leaves most of it in RAM
      const Plan resident = load_model(folder.path().string(), options).plan();
      const PlanDevice& device = gpu_of(resident);
      options.max_memory = parse_max_memory(
          "0=" + std::to_string(device.used() - device.weights + device.weights / 4) + ",cpu=10GB");
    }
    LoadedModel model = load_model(folder.path().string(), options);
    GenerateOptions generate;
    generate.temperature = 0;
    generate.max_new_tokens = 16;
    std::vector<std::vector<TokenId>> prompts;
    for (std::int64_t i = 0; i < batch; ++i) {
      prompts.emplace_back(8, static_cast<TokenId>(kPrompt + i));
    }
    std::vector<std::vector<TokenId>> ids;
    for (const Generated& one : model.generate_batch(prompts, generate)) ids.push_back(one.ids);
    return std::tuple(ids, plan.cpu_share, model.report().bytes_moved);
  };
  for (const std::int64_t batch : {1, 3}) {
    const auto [alone, no_share, all_bytes] = run(1, batch);
    const auto [helped, share, fewer_bytes] = run(2.5e10, batch);
    EXPECT_LT(no_share, 1e-6);
    EXPECT_NEAR(share, 0.5, 0.01);
    EXPECT_LT(fewer_bytes, all_bytes);
    EXPECT_EQ(helped, alone);
  }
}

}  // namespace
}  // namespace haul
