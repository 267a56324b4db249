// Every family on a GPU, with its weights there, in RAM and on disk: what all of it on the GPU
// gives, bit by bit; about what the CPU gives; in the memory that the plan says.

#include "tests/support/gpu_families.h"

#include <algorithm>
#include <array>
#include <future>

#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>

#include "haul/torch/model.h"
#include "tests/support/small_models.h"
#include "tests/support/temporary_folder.h"

namespace haul {
namespace {

namespace fs = std::filesystem;

using test::budget_without;
using test::gpu_of;
using test::largest;

constexpr std::int64_t kContext = test::kFamilyContext;
constexpr TokenId kPrompt = 7;
// Decoders that look at all tokens.
const std::vector<std::string_view> kRecorded = {"gpt2", "llama", "qwen3", "bloom"};

class GpuFamilies : public test::GpuFamily {};

TEST_P(GpuFamilies, GiveAboutWhatTheCpuGives) {
  const test::Answers cpu = answers(options("cpu=10GB"));
  const test::Answers resident = answers(options("0=10GB,cpu=10GB"));
  EXPECT_EQ(resident.report.bytes_moved, 0U);
  EXPECT_EQ(resident.ids.size(), decodes() ? 24U : cpu.ids.size());
  expect_about(resident, cpu, "cpu=10GB");
}

TEST_P(GpuFamilies, GiveAboutItWhereTheCpuComputesLayers) {
  const test::Answers resident = answers(options("0=10GB,cpu=10GB"));
  test::write_cpu_profile(folder.path() / "profile.json");
  const std::string some = "0=" + std::to_string(budget_without(resident.plan, 0.5));
  const test::Answers both = answers(options(some + ",cpu=10GB"));
  Bytes on_cpu = 0;
  Bytes all = 0;
  for (const PlanStep& step : both.plan.steps) {
    all += step.weights;
    if (step.runs_on == kCpuDevice) on_cpu += step.weights;
  }
  EXPECT_GT(on_cpu, all / 3);
  EXPECT_LT(on_cpu, all * 2 / 3);
  expect_about(both, resident, "0=10GB,cpu=10GB");
  expect_planned_peaks(both);
}

TEST_P(GpuFamilies, GiveTheSameWhereverTheirWeightsLie) {
  const test::Answers resident = answers(options("0=10GB,cpu=10GB"));
  const std::string some = "0=" + std::to_string(budget_without(resident.plan, 0.4));
  for (const char* others : {",cpu=10GB", ""}) {
    SCOPED_TRACE(*others != '\0' ? "the rest in RAM" : "the rest on disk");
    const test::Answers away = answers(options(some + others));
    EXPECT_TRUE(is_on(*others != '\0' ? kCpuDevice : kDiskDevice, away.plan));
    EXPECT_GT(away.report.bytes_moved, 0U);
    expect_same(away, resident);
    expect_planned_peaks(away);
  }
  SCOPED_TRACE("on the GPU, in RAM and on disk");
  const Plan three = planned("0=" + std::to_string(budget_without(resident.plan, 0.6)) +
                             ",cpu=" + std::to_string(gpu_of(resident.plan).weights * 3 / 10));
  ModelOptions in_three = options("0=10GB,cpu=10GB");
  in_three.placement = three.map;
  const test::Answers away = answers(in_three);
  for (const Device device : {gpu(0), kCpuDevice, kDiskDevice}) {
    EXPECT_TRUE(is_on(device, away.plan)) << to_string(device);
  }
  EXPECT_GT(away.report.bytes_moved, 0U);
  expect_same(away, resident);
  expect_planned_peaks(away);
}

TEST_P(GpuFamilies, GiveTheSameWithGraphsAndWithout) {
  ModelOptions with = options("0=10GB,cpu=10GB");
  const test::Answers recorded = answers(with);
  with.graphs = false;
  const test::Answers plain = answers(with);
  // The others forget tokens, or cannot be recorded.
  const bool records = family().name.ends_with("_whole") ||
                       std::any_of(kRecorded.begin(), kRecorded.end(), [](std::string_view name) {
                         return family().name.starts_with(name);
                       });
  EXPECT_EQ(recorded.figures.replayed, records ? 23 : 0);
  EXPECT_EQ(plain.figures.replayed, 0);
  expect_same(recorded, plain);
}

// A batch of which a GPU cannot remember all, in three parts, with padding and without; where its
// weights lie there, and where half of them come for each part.
class GpuKvInRam : public test::GpuFamily {};

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
  const auto run = [&](const ModelOptions& how, Plan* plan, Bytes* moved) {
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
    *moved = model.report().bytes_moved;
    return found;
  };
  Plan resident;
  Bytes moved = 0;
  const auto expected = run(asked, &resident, &moved);
  for (const double missing : {0.0, 0.5}) {
    SCOPED_TRACE(missing);
    asked.placement = MapMode::kAuto;
    if (missing > 0) {
      asked.max_memory = {budget(gpu(0), budget_without(resident, missing)),
                          budget(kCpuDevice, 10 * kGiB)};
    }
    Plan apart;
    EXPECT_EQ(run(asked, &apart, &moved), expected);
    ASSERT_FALSE(apart.kv_in_ram);
    EXPECT_EQ(moved > 0, missing > 0);
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
    EXPECT_EQ(run(asked, &plan, &moved), expected);
    ASSERT_TRUE(plan.kv_in_ram);
    EXPECT_EQ(moved > 0, missing > 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GpuFamilies, test::in_both_dtypes(test::families()),
                         test::family_name);
INSTANTIATE_TEST_SUITE_P(WithoutWindows, GpuFamilies,
                         test::in_both_dtypes(test::families_without_windows()), test::family_name);
INSTANTIATE_TEST_SUITE_P(InHalf, GpuFamilies,
                         testing::Combine(testing::ValuesIn(test::families({"gpt2", "llama",
                                                                            "bloom", "t5"})),
                                          testing::Values(Dtype::kF16)),
                         test::family_name);
INSTANTIATE_TEST_SUITE_P(All, GpuKvInRam, test::in_both_dtypes(test::families(kRecorded)),
                         test::family_name);

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
    const auto keep = [&](const std::vector<Generated>& results, bool padded = false) {
      for (const Generated& one : results) found.push_back(one.ids);
      EXPECT_EQ(model.figures().replayed > 0, graphs && !padded);
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
          keep(model.generate_batch({{7, 8, 9}, {10}}, generate), true);
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

// Recorded by one thread, whose libraries have one memory for all of it, and run by two.
TEST(GpuGraphs, OfTwoModelsRunOnStreamsOfTheirOwn) {
  const test::TemporaryFolder folder{fs::current_path()};
  test::write_model(folder.path(), kLlama);
  ModelOptions options;
  options.log = [](const std::string&) {};
  options.context = kContext;
  options.dtype = Dtype::kF32;
  options.max_memory = parse_max_memory("0=2GB,cpu=10GB");
  GenerateOptions generate;
  generate.temperature = 0;
  generate.max_new_tokens = 60;
  std::array models = {load_model(folder.path().string(), options),
                       load_model(folder.path().string(), options)};
  const auto ids_of = [&](std::size_t model) {
    const std::vector<TokenId> prompt(1, static_cast<TokenId>(5 + model));
    return models[model].generate(prompt, generate).ids;
  };
  const std::array expected = {ids_of(0), ids_of(1)};
  const auto run = [&](std::size_t model) {
    const c10::cuda::CUDAStreamGuard own(c10::cuda::getStreamFromPool());
    int wrong = 0;
    for (int time = 0; time < 20; ++time) wrong += ids_of(model) != expected[model];
    return wrong;
  };
  std::array both = {std::async(std::launch::async, run, 0),
                     std::async(std::launch::async, run, 1)};
  for (const std::size_t model : {0, 1}) {
    EXPECT_EQ(both[model].get(), 0);
    EXPECT_EQ(models[model].figures().replayed, 59);
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
    EXPECT_EQ(model.figures().replayed, graphs ? 11 : 0);
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
  options.max_memory = {budget(gpu(0), budget_without(resident, 0.5)),
                        budget(kCpuDevice, gpu_of(resident).activations + 10 * kMiB)};
  const auto [found, plan, report] = run();
  EXPECT_EQ(found, expected);
  EXPECT_TRUE(plan.steps.front().looked_up);
  EXPECT_LE(report.bytes_moved, 64U * 192 * sizeof(float)) << "rows of 64 tokens";
  EXPECT_EQ(report.unplanned, 0U);
}

class GpuHelp : public test::GpuFamily {};

TEST_P(GpuHelp, OfTheCpuLeavesTheWordsAsTheyAre) {
  const auto prompt_of = [](std::int64_t i) {
    return std::vector<TokenId>(8, static_cast<TokenId>(kPrompt + i));
  };
  const auto run = [&](double help, std::int64_t batch) {
    test::write_gpu_profile(folder.path() / "profile.json", help);
    ModelOptions asked = options("0=2GB,cpu=10GB");
    asked.batch = batch;
    Plan plan;
    asked.on_plan = [&](const Plan& made) { plan = made; };
    {  // a budget that leaves most of it in RAM
      const Plan resident = load_model(folder.path().string(), asked).plan();
      asked.max_memory =
          parse_max_memory("0=" + std::to_string(budget_without(resident, 0.75)) + ",cpu=10GB");
    }
    LoadedModel model = load_model(folder.path().string(), asked);
    GenerateOptions generate;
    generate.temperature = 0;
    generate.max_new_tokens = 16;
    std::vector<std::vector<TokenId>> prompts;
    for (std::int64_t i = 0; i < batch; ++i) prompts.push_back(prompt_of(i));
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
    if (dtype() == Dtype::kF32) {
      EXPECT_EQ(helped, alone);
    } else {
      for (std::int64_t i = 0; i < batch; ++i) {
        const std::vector<TokenId>& ids = helped[static_cast<std::size_t>(i)];
        EXPECT_LE(distance(ids, options("0=2GB"), prompt_of(i)), 2 * bound()) << i;
      }
    }
  }
}

// Budgets that leave no room for a second slot: biases come through the same one.
TEST_P(GpuHelp, OfTheCpuNeedsNoMoreThanOneSlot) {
  test::write_gpu_profile(folder.path() / "profile.json", 2.5e10);
  const test::Answers resident = answers(options("0=10GB,cpu=10GB"));
  const Plan whole = planned("0=10GB,cpu=10GB");
  std::vector<std::pair<std::string, Bytes>> slots;  // of a budget
  Bytes most = 0;
  for (double missing = 0.35; missing < 0.9; missing += 0.02) {
    const std::string budget = "0=" + std::to_string(budget_without(whole, missing));
    slots.emplace_back(budget + ",cpu=10GB", gpu_of(planned(budget + ",cpu=10GB")).slots);
    most = std::max(most, slots.back().second);
  }
  const auto is_one = [&](Bytes size) { return size > 0 && 3 * size < 2 * most; };
  int tried = 0;
  for (const auto& [budget, size] : slots) {
    if (!is_one(size) || tried == 3) continue;
    const test::Answers helped = answers(options(budget));
    tried += is_one(gpu_of(helped.plan).slots);
    EXPECT_GT(helped.plan.cpu_share, 0.1);
    expect_planned_peaks(helped);
    ASSERT_EQ(helped.ids.size(), 24U);
    expect_about(helped, resident, "0=10GB,cpu=10GB");
  }
  EXPECT_EQ(tried, 3);
}

INSTANTIATE_TEST_SUITE_P(All, GpuHelp, test::in_both_dtypes(test::large_decoders()),
                         test::family_name);

// With weights on disk as well, with which it does not help, and with decoders that have an
// encoder; these in float32, of which they are 12 % off in bfloat16 on any device.
class GpuHelpWithOthers : public test::GpuFamily {};

TEST_P(GpuHelpWithOthers, LeavesTheNumbersAsTheyAre) {
  const test::Answers resident = answers(options("0=10GB,cpu=10GB"));
  const std::string some = "0=" + std::to_string(budget_without(resident.plan, 0.75));
  const Bytes weights = gpu_of(resident.plan).weights;
  for (const Bytes ram : {10 * kGiB, weights / 2}) {
    SCOPED_TRACE(format_bytes(ram));
    const std::string memory = some + ",cpu=" + std::to_string(ram);
    test::write_gpu_profile(folder.path() / "profile.json", 1);
    const test::Answers alone = answers(options(memory));
    test::write_gpu_profile(folder.path() / "profile.json", 2.5e10);
    const test::Answers helped = answers(options(memory));
    EXPECT_EQ(is_on(kDiskDevice, helped.plan), ram < weights);
    EXPECT_TRUE(is_on(kCpuDevice, helped.plan));
    EXPECT_GT(helped.plan.cpu_share, 0.1);
    EXPECT_LT(helped.report.bytes_moved, alone.report.bytes_moved);
    expect_about(helped, resident, "0=10GB,cpu=10GB");
  }
}

INSTANTIATE_TEST_SUITE_P(All, GpuHelpWithOthers,
                         test::in_both_dtypes(test::large_families({"llama", "qwen2"})),
                         test::family_name);
INSTANTIATE_TEST_SUITE_P(WithEncoders, GpuHelpWithOthers,
                         testing::Combine(testing::ValuesIn(test::large_families({"t5",
                                                                                  "t5_gated"})),
                                          testing::Values(Dtype::kF32)),
                         test::family_name);

}  // namespace
}  // namespace haul
