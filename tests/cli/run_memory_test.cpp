// What the process takes, against what the plan says, on a model of more than 2 GB. Its weights are
// all zero: the file is a hole, which the disk gives as fast as anything.

#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "core/describe/describe.h"
#include "core/formats/safetensors_writer.h"
#include "haul/bytes.h"
#include "haul/description.h"
#include "tests/support/run_process.h"
#include "tests/support/temporary_folder.h"

namespace haul::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "hidden_size": 2048, "intermediate_size": 7168, "num_hidden_layers": 18,
  "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 16000,
  "max_position_embeddings": 512, "tie_word_embeddings": false, "dtype": "bfloat16"})";

// Gives the bytes of the weights.
Bytes write_model(const fs::path& folder) {
  const Description description =
      core::describe_config(core::parse_json(kConfig, "config.json"), "config.json");
  std::vector<core::HeaderTensor> tensors;
  for (const NamedTensor& tensor : all_tensors(description)) {
    if (!tensor.is_buffer) tensors.push_back({tensor.name, Dtype::kBF16, tensor.shape});
  }
  const std::string prefix = core::safetensors_prefix(tensors, {});
  const fs::path file = folder / "model.safetensors";
  std::ofstream(file, std::ios::binary) << prefix;
  const Bytes bytes = core::safetensors_size(tensors);
  fs::resize_file(file, prefix.size() + bytes);
  std::ofstream(folder / "config.json") << kConfig;
  return bytes;
}

// The process without libtorch's share, and what the plan has for it.
void expect_as_planned(const nlohmann::json& stats, double at_least_planned) {
  const double planned = stats.at("planned").at("RAM");
  const double process = stats.at("process").get<double>() - stats.at("libtorch").get<double>();
  EXPECT_GE(planned, at_least_planned);
  EXPECT_LE(stats.at("peak").at("RAM").get<double>(), planned);
  EXPECT_LE(process, 1.05 * planned);
  EXPECT_GE(process, 0.95 * planned);
  std::printf("planned %.1f MB, process %.1f MB (%.2f %%), libtorch %.1f MB, %.1f MB moved\n",
              planned / 1e6, process / 1e6, 100 * process / planned,
              stats.at("libtorch").get<double>() / 1e6,
              stats.at("bytes_moved").get<double>() / 1e6);
}

nlohmann::json run(const fs::path& folder, std::vector<std::string> more) {
  std::vector<std::string> arguments = {
      "run", folder.string(), "--ids", "1,7", "--context", "32", "--json", "--max-new-tokens", "3"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const auto finished = test::run_haul(arguments);
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  return nlohmann::json::parse(finished.out).at("stats");
}

TEST(RunMemory, TheProcessOfALargeModelTakesWhatThePlanSays) {
  const test::TemporaryFolder folder(fs::current_path());
  const Bytes weights = write_model(folder.path());
  ASSERT_GT(weights, 2'000'000'000U);
  const auto all = static_cast<double>(weights);
  {
    SCOPED_TRACE("all in RAM");
    const auto stats = run(folder.path(), {"--max-memory", "cpu=8GB"});
    expect_as_planned(stats, all);
    EXPECT_EQ(stats.at("bytes_moved"), 0);
  }
  {
    SCOPED_TRACE("half on disk");
    const auto stats = run(folder.path(), {"--max-memory", "cpu=" + std::to_string(weights / 2)});
    expect_as_planned(stats, 0.4 * all);
    EXPECT_LE(stats.at("planned").at("RAM").get<double>(), 0.5 * all);
    EXPECT_GT(stats.at("bytes_moved").get<double>(), 0.5 * all);
  }
}

}  // namespace
}  // namespace haul::cli
