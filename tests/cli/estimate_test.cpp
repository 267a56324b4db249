#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/run_process.h"
#include "tests/support/temporary_folder.h"

namespace haul::cli {
namespace {

using nlohmann::json;
using test::run_haul;
using test::TemporaryFolder;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

constexpr const char* kBert = R"({"architectures": ["BertForMaskedLM"], "model_type": "bert",
  "vocab_size": 28996})";
constexpr const char* kLlama = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "dtype": "bfloat16", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
  "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
  "max_position_embeddings": 131072})";

json estimate_json(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "estimate");
  arguments.push_back("--json");
  const auto run = run_haul(arguments);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  return json::parse(run.out, nullptr, false);
}

json row(const json& report, const std::string& dtype) {
  for (const json& each : report.at("rows")) {
    if (each.at("dtype") == dtype) return each;
  }
  return {};
}

std::uint64_t tagged(const json& report, const std::string& tag) {
  for (const json& entry : report.at("table")) {
    if (entry.at("tag") == tag) return entry.at("bytes");
  }
  return 0;
}

// A safetensors file of zeros: names with their shapes, float32.
std::string safetensors(const std::vector<std::pair<std::string, std::vector<int>>>& tensors) {
  json header = json::object();
  std::uint64_t end = 0;
  for (const auto& [name, shape] : tensors) {
    std::uint64_t size = 4;
    for (const int each : shape) size *= static_cast<std::uint64_t>(each);
    header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {end, end + size}}};
    end += size;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string file(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  return file + text + std::string(end, '\0');
}

TEST(Estimate, PrintsThePeersTableOfBert) {
  const TemporaryFolder folder;
  folder.write("config.json", kBert);
  const auto run = run_haul({"estimate", folder.path(), "--base-model"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, IsEmpty());
  EXPECT_THAT(run.out, HasSubstr("│ dtype │Largest Layer│Total Size│Training using Adam│"));
  EXPECT_THAT(run.out, HasSubstr("│float32│   86.47 MB  │413.18 MB │      1.61 GB      │"));
  EXPECT_THAT(run.out, HasSubstr("│float16│   43.23 MB  │206.59 MB │     826.36 MB     │"));
  EXPECT_THAT(run.out, HasSubstr("│  int8 │   21.62 MB  │103.29 MB │        N/A        │"));
  EXPECT_THAT(run.out, HasSubstr("│  int4 │   10.81 MB  │ 51.65 MB │        N/A        │"));
}

TEST(Estimate, IsPlainTextInAPipe) {
  const TemporaryFolder folder;
  const auto run = run_haul({"estimate", folder.write("config.json", kBert)});
  EXPECT_THAT(run.out, Not(HasSubstr("\033")));
  EXPECT_THAT(run.out, Not(HasSubstr("█")));
  EXPECT_THAT(run.out, AllOf(HasSubstr("weights"), HasSubstr("workspace"), HasSubstr("H200")));
}

TEST(Estimate, JsonCountsInBytes) {
  const TemporaryFolder folder;
  const json report = estimate_json({folder.write("config.json", kBert), "--base-model"});
  EXPECT_EQ(report.at("architecture"), "BertModel");
  EXPECT_EQ(report.at("source"), "config");
  EXPECT_EQ(report.at("parameters"), 108'310'272);
  EXPECT_EQ(row(report, "float32").at("largest_layer"), 90'669'056);
  EXPECT_EQ(row(report, "float32").at("largest_layer_names"), json({"embeddings"}));
  EXPECT_EQ(row(report, "float32").at("total"), 433'249'280);
  EXPECT_EQ(row(report, "float32").at("training_adam"), 1'732'997'120);
  EXPECT_EQ(row(report, "float16").at("training_adam"), 866'498'560);
  EXPECT_EQ(row(report, "int4").at("total"), 54'156'160);
  EXPECT_TRUE(row(report, "int8").at("training_adam").is_null());
  // The two int64 buffers do not shrink.
  EXPECT_EQ(report.at("true_rows")[1].at("total"), 108'310'272 * 2 + 8'192);
  EXPECT_EQ(report.at("true_rows")[1].at("unshrunk"), 8'192);
  EXPECT_FALSE(report.contains("fit"));
  EXPECT_GE(report.at("gpus").size(), 8u);
}

TEST(Estimate, CountsTheModelThatTheConfigNames) {
  const TemporaryFolder folder;
  const json report = estimate_json({folder.write("config.json", kBert)});
  EXPECT_EQ(report.at("architecture"), "BertForMaskedLM");
  EXPECT_EQ(report.at("parameters"), 108'340'804);
}

TEST(Estimate, KnowsTimmsResNetByItsNameAlone) {
  const json report = estimate_json({"resnet50", "--library_name", "timm"});
  EXPECT_EQ(row(report, "float32").at("total"), 102'441'032);
  EXPECT_EQ(row(report, "float32").at("largest_layer"), 9'437'184);
  EXPECT_EQ(estimate_json({"resnet50.a1_in1k", "--library_name", "timm"}).at("rows"),
            report.at("rows"));
}

TEST(Estimate, SizesIdefics) {
  const TemporaryFolder folder;
  const auto config = folder.write("config.json", R"({
    "architectures": ["IdeficsForVisionText2Text"], "model_type": "idefics", "vocab_size": 32000,
    "additional_vocab_size": 2, "hidden_size": 8192, "intermediate_size": 22016,
    "num_hidden_layers": 80, "num_attention_heads": 64, "cross_layer_interval": 4,
    "use_resampler": true, "vision_config": {"embed_dim": 1280, "image_size": 224,
    "intermediate_size": 5120, "num_attention_heads": 16, "num_hidden_layers": 32,
    "patch_size": 14}, "perceiver_config": {"resampler_depth": 6, "resampler_head_dim": 96,
    "resampler_n_heads": 16, "resampler_n_latents": 64}})");
  const json report = estimate_json({config, "--base-model"});
  EXPECT_EQ(row(report, "float32").at("largest_layer"), 3'238'068'736);
  EXPECT_EQ(row(report, "float32").at("largest_layer_names").size(), 80u);
  EXPECT_THAT(run_haul({"estimate", config, "--base-model"}).out, HasSubstr("3.02 GB"));
}

TEST(Estimate, AnswersToThePeersNameToo) {
  const TemporaryFolder folder;
  const std::string config = folder.write("config.json", kBert);
  const auto ours = run_haul({"estimate", config, "--json"});
  const auto theirs = run_haul({"estimate-memory", config, "--json"});
  EXPECT_EQ(theirs.exit_code, 0);
  EXPECT_EQ(ours.out, theirs.out);
}

TEST(Estimate, TakesDtypesWithSpacesOrCommas) {
  const TemporaryFolder folder;
  const std::string config = folder.write("config.json", kBert);
  const json spaced = estimate_json({config, "--dtypes", "bfloat16", "int4", "fp8"});
  ASSERT_EQ(spaced.at("rows").size(), 3u);
  EXPECT_EQ(spaced.at("rows")[0].at("dtype"), "bfloat16");
  EXPECT_EQ(spaced.at("rows"), estimate_json({config, "--dtypes", "bfloat16,int4,fp8"}).at("rows"));
}

TEST(Estimate, InferenceGrowsWithContextAndBatch) {
  const TemporaryFolder folder;
  const std::string config = folder.write("config.json", kLlama);
  const json report = estimate_json({config, "--context", "8192", "--batch", "2"});
  EXPECT_EQ(tagged(report, "kv"), std::uint64_t{2} << 30);
  EXPECT_EQ(tagged(report, "weights"), (8'030'261'248u + 128) * 2);
  EXPECT_EQ(report.at("run"), "inference in bfloat16, batch 2, 8192 tokens");
  std::uint64_t sum = 0;
  for (const json& entry : report.at("table")) sum += entry.at("bytes").get<std::uint64_t>();
  EXPECT_EQ(report.at("total"), sum);
}

TEST(Estimate, TrainingHasItsOwnTable) {
  const TemporaryFolder folder;
  const std::string config = folder.write("config.json", kLlama);
  const json full = estimate_json({config, "--train", "full", "--seq", "512"});
  EXPECT_EQ(tagged(full, "optimizer"), 8'030'261'248u * 8);
  EXPECT_EQ(tagged(full, "kv"), 0u);
  const json small = estimate_json({config, "--train", "lora", "--lora-rank", "4", "--optimizer",
                                    "sgd", "--recompute", "--seq", "512"});
  EXPECT_EQ(tagged(small, "optimizer"), 0u);
  EXPECT_LT(tagged(small, "activations"), tagged(full, "activations"));
  EXPECT_LT(small.at("total"), full.at("total"));
}

TEST(Estimate, JudgesByASizeOrAGpu) {
  const TemporaryFolder folder;
  const std::string config = folder.write("config.json", kLlama);
  const json roomy = estimate_json({config, "--fit", "4090"});
  EXPECT_EQ(roomy.at("fit").at("name"), "RTX 4090 24GB");
  EXPECT_EQ(roomy.at("fit").at("verdict"), "fits");
  EXPECT_FALSE(roomy.contains("gpus"));
  const json tight = estimate_json({config, "--fit", "8GiB"});
  EXPECT_EQ(tight.at("fit").at("verdict"), "fits_with_offload");
  EXPECT_GT(tight.at("fit").at("offloaded"), 8'000'000'000u);
  const json none = estimate_json({config, "--fit", "1GB"});
  EXPECT_EQ(none.at("fit").at("verdict"), "does_not_fit");
  EXPECT_GT(none.at("fit").at("missing"), 0u);
}

TEST(Estimate, DescribesAnUnknownModelFromItsCheckpoint) {
  const TemporaryFolder folder;
  const auto file = folder.write(
      "model.safetensors",
      safetensors({{"layers.0.w.weight", {4, 4}}, {"layers.1.w.weight", {4, 4}}, {"e", {10}}}));
  const json report = estimate_json({file});
  EXPECT_EQ(report.at("source"), "checkpoint");
  EXPECT_EQ(report.at("parameters"), 42);
  EXPECT_EQ(row(report, "float32").at("total"), 168);
  EXPECT_EQ(row(report, "int4").at("total"), 21);
  EXPECT_EQ(report.at("file_bytes"), 168);
  EXPECT_THAT(report.at("notes").dump(), HasSubstr("activations"));
}

TEST(Estimate, NotesASequenceThatIsLongerThanTheModelsOwn) {
  const TemporaryFolder folder;
  const json report = estimate_json({folder.write("config.json", kBert), "--context", "4096"});
  EXPECT_THAT(report.at("notes").dump(), HasSubstr("at most 512 tokens"));
}

TEST(Estimate, RefusesWhatMakesNoSenseAsUsage) {
  const TemporaryFolder folder;
  const std::string config = folder.write("config.json", kBert);
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"--dtypes", "float64"}, "float32, float16, bfloat16, fp8, int8, int4"},
      {{"--train", "some"}, "full, lora"},
      {{"--train", "full", "--optimizer", "lion"}, "adamw, adam8bit, adafactor, sgd"},
      {{"--precision", "fp64"}, "fp32, bf16, fp16"},
      {{"--optimizer", "sgd"}, "--train"},
      {{"--train", "full", "--context", "10"}, "--context"},
      {{"--batch", "0"}, "--batch"},
      {{"--fit", "A100"}, "A100 80GB"},
      {{"--fit", "abacus"}, "24GiB"},
      {{"--library_name", "diffusers"}, "transformers"},
      {{"--library_name", "timm"}, "of transformers, not of timm"},
  };
  for (const auto& [flags, expected] : cases) {
    std::vector<std::string> arguments{"estimate", config};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const auto run = run_haul(arguments);
    EXPECT_EQ(run.exit_code, 2) << testing::PrintToString(flags);
    EXPECT_THAT(run.err, AllOf(StartsWith("haul: error: "), HasSubstr(expected)));
    EXPECT_THAT(run.out, IsEmpty());
  }
  EXPECT_EQ(run_haul({"estimate"}).exit_code, 2);
}

TEST(Estimate, FailsOnAModelThatIsNotThereOrNotKnown) {
  const TemporaryFolder folder;
  EXPECT_EQ(run_haul({"estimate", folder.path() / "none"}).exit_code, 1);
  const auto run =
      run_haul({"estimate", folder.write("config.json", R"({"architectures": ["NoSuchModel"]})")});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, HasSubstr("NoSuchModel"));
}

TEST(Estimate, HelpShowsExamples) {
  const auto run = run_haul({"estimate", "--help"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(run.out, AllOf(HasSubstr("Examples"), HasSubstr("--lora-rank")));
}

}  // namespace
}  // namespace haul::cli
