#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/file.h"
#include "haul/profile.h"
#include "tests/support/run_process.h"
#include "tests/support/temporary_folder.h"

namespace haul {
namespace {

using test::run_haul;
using testing::HasSubstr;

TEST(BenchCommand, KeepsWhatItMeasuresForPlans) {
  const test::TemporaryFolder folder{std::filesystem::current_path()};
  const std::string file = folder.path() / "made" / "profile.json";
  const auto done =
      run_haul({"bench", "machine", "--json", "--folder", folder.path()}, {{"HAUL_PROFILE", file}});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  const Profile profile = read_profile(done.out, "stdout");
  EXPECT_TRUE(profile.measured);
  // Within a factor of a thousand of any machine.
  for (const double rate : {profile.ram_bandwidth, profile.disk_bandwidth}) {
    EXPECT_GT(rate, 1e7);
    EXPECT_LT(rate, 1e13);
  }
  EXPECT_GT(profile.cpu_operations, 1e8);
  EXPECT_EQ(read_profile(core::read_file(file, kMiB), file), profile);
  std::size_t left = 0;
  for ([[maybe_unused]] const auto& item : std::filesystem::directory_iterator(folder.path())) {
    ++left;
  }
  EXPECT_EQ(left, 1U) << "nothing but the folder of the profile";
}

// A model small enough to be made and run in a moment.
std::string write_shape(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "tiny.json";
  core::write_file_atomically(file, R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 512,
    "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 1024, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16", "eos_token_id": 2})");
  return file;
}

std::filesystem::path model_in(const std::filesystem::path& folder) {
  for (const auto& item : std::filesystem::directory_iterator(folder)) {
    if (item.path().filename().string().starts_with("tiny-")) return item.path();
  }
  return {};
}

TEST(BenchCommand, DecodesRandomWeightsBesideTheLimit) {
  const test::TemporaryFolder folder{std::filesystem::current_path()};
  const std::string shape = write_shape(folder.path());
  const std::filesystem::path made = folder.path() / "made";
  const std::vector<std::string> command{"bench", "decode", "--shape",  shape, "--folder",
                                         made,    "--json", "--rounds", "3",   "--peer=/no/python"};
  const auto done = run_haul(command);
  ASSERT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.err, HasSubstr("/no/python: cannot start"));
  const auto json = nlohmann::json::parse(done.out);
  EXPECT_EQ(json["bench"], "decode");
  // 3 layers of q, k, v, o, gate, up, down and two norms; the embeddings, the last norm, the head.
  constexpr std::int64_t kLayer = 64 * (64 + 32 + 32 + 64) + 3 * 160 * 64 + 2 * 64;
  EXPECT_EQ(json["weights"], 2 * (3 * kLayer + 2 * 512 * 64 + 64));
  ASSERT_EQ(json["rows"].size(), 1U);
  const auto& row = json["rows"][0];
  EXPECT_EQ(row["unit"], "tokens/s");
  auto rounds = row["rounds"]["haul"].get<std::vector<double>>();
  ASSERT_EQ(rounds.size(), 3U);
  std::sort(rounds.begin(), rounds.end());
  EXPECT_EQ(row["haul"], rounds[1]);
  EXPECT_GT(rounds[0], 0);
  EXPECT_GT(row["planned"], 0);
  EXPECT_DOUBLE_EQ(row["of_limit"].get<double>(), rounds[1] / row["limit"].get<double>());
  EXPECT_TRUE(row["peer"].is_null());

  // The checkpoint stays, as it was, and so does the machine for a while.
  for (const std::filesystem::path& file :
       {model_in(made) / "model.safetensors", made / "work" / "profile.json"}) {
    const auto written = std::filesystem::last_write_time(file);
    ASSERT_EQ(run_haul(command).exit_code, 0);
    EXPECT_EQ(std::filesystem::last_write_time(file), written) << file;
  }
}

TEST(BenchCommand, RefusesShapesThatItDoesNotKnow) {
  const test::TemporaryFolder folder{std::filesystem::current_path()};
  const auto bench = [&](const std::string& shape) {
    return run_haul({"bench", "load", "--shape", shape, "--folder", folder.path()});
  };
  const auto unknown = bench("llama-9t");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("'llama-9t' is no shape"));
  EXPECT_THAT(unknown.err, HasSubstr("llama-8b"));
  core::write_file_atomically(folder.path() / "list.json", "[]");
  const auto list = bench(folder.path() / "list.json");
  EXPECT_EQ(list.exit_code, 1);
  EXPECT_THAT(list.err, HasSubstr("list.json: is no JSON object"));
}

TEST(BenchCommand, DoesNotWriteOverAnotherModel) {
  const test::TemporaryFolder folder{std::filesystem::current_path()};
  const std::string shape = write_shape(folder.path());
  const std::filesystem::path made = folder.path() / "made";
  const std::vector<std::string> command{"bench",    "decode", "--shape",  shape,
                                         "--folder", made,     "--rounds", "1"};
  const auto first = run_haul(command);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("all in RAM"));
  const std::filesystem::path config = model_in(made) / "config.json";
  core::write_file_atomically(config, "{}");
  const std::filesystem::path profile = made / "work" / "profile.json";
  const auto earlier = std::filesystem::last_write_time(profile) - std::chrono::hours(1);
  std::filesystem::last_write_time(profile, earlier);
  const auto again = run_haul(command);
  EXPECT_GT(std::filesystem::last_write_time(profile), earlier) << "too long ago";
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.err, HasSubstr("config.json: is of another model"));
  EXPECT_EQ(core::read_file(config, kMiB), "{}");
}

TEST(BenchCommand, RefusesModelsThatContinueNoTextAndConfigsThatAreWrong) {
  const test::TemporaryFolder folder{std::filesystem::current_path()};
  const std::filesystem::path shape = folder.path() / "bert.json";
  core::write_file_atomically(shape, R"({
    "architectures": ["BertModel"], "model_type": "bert", "vocab_size": 512, "hidden_size": 64,
    "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2})");
  const auto decode = [&] {
    return run_haul({"bench", "decode", "--shape", shape, "--folder", folder.path() / "made"});
  };
  const auto done = decode();
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_THAT(done.err, HasSubstr("BertModel does not continue a text"));
  core::write_file_atomically(shape, R"({"model_type": "llama", "hidden_size": "wide"})");
  const auto wrong = decode();
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.err, HasSubstr(shape.string() + ": \"hidden_size\" is \"wide\""));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "made")) << "before anything is measured";
}

TEST(BenchCommand, SaysWhatItCanMeasure) {
  const auto none = run_haul({"bench"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("A subcommand is required"));
  const auto nowhere = run_haul({"bench", "machine", "--folder", "/no/such/folder"});
  EXPECT_EQ(nowhere.exit_code, 2);
  EXPECT_THAT(nowhere.err, HasSubstr("/no/such/folder"));
}

}  // namespace
}  // namespace haul
