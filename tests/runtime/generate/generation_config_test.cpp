#include "runtime/generate/generation_config.h"

#include <limits>

#include <fmt/format.h>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace haul::runtime {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

GenerationConfig read(const char* text, const char* model_config = "{}") {
  const test::TemporaryFolder folder;
  return read_generation_config(core::parse_json(model_config, "config.json"),
                                folder.write("generation_config.json", text));
}

void expect_corrupt(const char* key, const char* text) {
  SCOPED_TRACE(text);
  test::expect_error(ErrorKind::kCorrupt,
                     AllOf(HasSubstr("generation_config.json"), HasSubstr(key)),
                     [&] { read(text); });
}

TEST(GenerationConfig, WithoutItsFileTheModelsConfigTellsTheIds) {
  const GenerationConfig config = read_generation_config(
      core::parse_json(R"({"eos_token_id": 2, "pad_token_id": 0, "decoder_start_token_id": 7})",
                       "config.json"),
      "/nowhere/generation_config.json");
  EXPECT_THAT(config.stop_tokens, ElementsAre(2));
  EXPECT_EQ(config.padding, 0U);
  EXPECT_EQ(config.decoder_start, 7U);
  EXPECT_FALSE(config.max_new_tokens);
  EXPECT_TRUE(config.sampling.greedy);
}

TEST(GenerationConfig, ItsFileWinsKeyByKey) {
  const GenerationConfig config = read(R"({"eos_token_id": [5, 6], "pad_token_id": null})",
                                       R"({"eos_token_id": 2, "pad_token_id": 3})");
  EXPECT_THAT(config.stop_tokens, ElementsAre(5, 6));
  EXPECT_EQ(config.padding, 3U);
}

TEST(GenerationConfig, AnEmptyFileAsksForTheLikeliestTokenWithoutAnEnd) {
  const GenerationConfig config = read("{}");
  EXPECT_THAT(config.stop_tokens, IsEmpty());
  EXPECT_FALSE(config.padding);
  EXPECT_FALSE(config.max_length);
  EXPECT_TRUE(config.sampling.greedy);
  EXPECT_EQ(config.sampling.repetition_penalty, 1);
}

TEST(GenerationConfig, ReadsHowToSample) {
  const GenerationConfig config =
      read(R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.01,
               "repetition_penalty": 1.1, "max_new_tokens": 12, "max_length": 99})");
  EXPECT_FALSE(config.sampling.greedy);
  EXPECT_EQ(config.sampling.temperature, 0.6);
  EXPECT_EQ(config.sampling.top_k, 20);
  EXPECT_EQ(config.sampling.top_p, 0.95);
  EXPECT_EQ(config.sampling.min_p, 0.01);
  EXPECT_EQ(config.sampling.repetition_penalty, 1.1);
  EXPECT_EQ(config.max_new_tokens, 12);
  EXPECT_EQ(config.max_length, 99);
}

TEST(GenerationConfig, SamplingWithoutMoreIsOfTheFiftyLikeliest) {
  const Sampling sampling = read(R"({"do_sample": true})").sampling;
  EXPECT_FALSE(sampling.greedy);
  EXPECT_EQ(sampling.temperature, 1);
  EXPECT_EQ(sampling.top_k, 50);
  EXPECT_EQ(sampling.top_p, 1);
}

TEST(GenerationConfig, ATemperatureOfZeroIsGreedy) {
  EXPECT_TRUE(read(R"({"do_sample": true, "temperature": 0})").sampling.greedy);
}

TEST(GenerationConfig, WhatGreedyDoesNotLookAtMayBeAnything) {
  const GenerationConfig config =
      read(R"({"do_sample": false, "temperature": -1, "top_p": 0, "min_p": 9})");
  EXPECT_TRUE(sampling_for(config, {}).greedy);
  GenerateOptions options;
  options.temperature = 0.5;
  const Sampling asked = sampling_for(config, options);
  EXPECT_EQ(asked.top_p, 1);
  EXPECT_EQ(asked.min_p, 0);
}

TEST(GenerationConfig, MinusOneIsNoToken) {
  const GenerationConfig config = read(R"({"pad_token_id": -1, "eos_token_id": [2, -1]})");
  EXPECT_FALSE(config.padding);
  EXPECT_EQ(config.stop_tokens, std::vector<TokenId>{2});
}

TEST(GenerationConfig, ErrorsNameTheFileAndTheKey) {
  for (const char* value : {R"("2")", "-2", "4294967296", "18446744073709551615", "1.5", "1e300",
                            "true", "{}", "[2, -3]", R"([2, "x"])", "[[2]]"}) {
    for (const char* key : {"eos_token_id", "pad_token_id", "decoder_start_token_id"}) {
      expect_corrupt(key, fmt::format(R"({{"{}": {}}})", key, value).c_str());
    }
  }
  for (const char* value :
       {R"("2")", "-1", "0", "18446744073709551615", "1e30", "2.5", "[]", "true"}) {
    for (const char* key : {"max_new_tokens", "max_length"}) {
      expect_corrupt(key, fmt::format(R"({{"{}": {}}})", key, value).c_str());
    }
  }
  for (const char* key : {"temperature", "top_k", "top_p", "min_p", "repetition_penalty"}) {
    for (const char* value : {R"("1")", "[1]", "false", "{}", "-0.5"}) {
      expect_corrupt(key, fmt::format(R"({{"do_sample": true, "{}": {}}})", key, value).c_str());
    }
  }
  expect_corrupt("top_k", R"({"do_sample": true, "top_k": 18446744073709551615})");
  expect_corrupt("top_p", R"({"do_sample": true, "top_p": 0})");
  expect_corrupt("top_p", R"({"do_sample": true, "top_p": 1.01})");
  expect_corrupt("min_p", R"({"do_sample": true, "min_p": 2})");
  expect_corrupt("repetition_penalty", R"({"repetition_penalty": 0})");
  expect_corrupt("do_sample", R"({"do_sample": "yes"})");
}

TEST(GenerationConfig, ReadsBeams) {
  const BeamSettings one = read("{}").beams;
  EXPECT_EQ(one.count, 1);
  EXPECT_EQ(one.length_penalty, 1);
  EXPECT_EQ(one.early_stopping, EarlyStopping::kNo);
  const BeamSettings four =
      read(R"({"num_beams": 4, "length_penalty": -0.5, "early_stopping": true})").beams;
  EXPECT_EQ(four.count, 4);
  EXPECT_EQ(four.length_penalty, -0.5);
  EXPECT_EQ(four.early_stopping, EarlyStopping::kYes);
  EXPECT_EQ(read(R"({"early_stopping": "never"})").beams.early_stopping, EarlyStopping::kNever);
  for (const char* value : {R"("2")", "-1", "0", "1.5"}) {
    expect_corrupt("num_beams", fmt::format(R"({{"num_beams": {}}})", value).c_str());
  }
  expect_corrupt("length_penalty", R"({"length_penalty": "long"})");
  expect_corrupt("early_stopping", R"({"early_stopping": "sometimes"})");
  expect_corrupt("early_stopping", R"({"early_stopping": 1})");
}

TEST(GenerationConfig, SeveralResultsAreRefused) {
  EXPECT_EQ(read(R"({"num_return_sequences": 1, "num_beams": 4})").beams.count, 4);
  test::expect_error(
      ErrorKind::kUnsupported,
      AllOf(HasSubstr("generation_config.json"), HasSubstr("num_return_sequences"), HasSubstr("3")),
      [] { read(R"({"num_return_sequences": 3, "num_beams": 4})"); });
}

TEST(BeamsFor, OptionsReplaceTheFiles) {
  const GenerationConfig config = read(R"({"num_beams": 4, "length_penalty": 2})");
  EXPECT_EQ(beams_for(config, {}).count, 4);
  GenerateOptions options;
  options.num_beams = 2;
  options.early_stopping = EarlyStopping::kNever;
  EXPECT_EQ(beams_for(config, options).count, 2);
  EXPECT_EQ(beams_for(config, options).length_penalty, 2);
  EXPECT_EQ(beams_for(config, options).early_stopping, EarlyStopping::kNever);
  options.num_beams = 0;
  test::expect_error(ErrorKind::kUsage, HasSubstr("num_beams"),
                     [&] { beams_for(config, options); });
  options.num_beams = 2;
  options.length_penalty = std::numeric_limits<double>::quiet_NaN();
  test::expect_error(ErrorKind::kUsage, HasSubstr("length_penalty"),
                     [&] { beams_for(config, options); });
}

TEST(GenerationConfig, AFileThatIsNoObjectIsNamed) {
  expect_corrupt("", "[]");
  expect_corrupt("", "3");
  expect_corrupt("", R"({"eos_token_id": )");
  expect_corrupt("", "");
}

TEST(GenerationConfig, ErrorsInTheModelsConfigNameThatFile) {
  test::expect_error(ErrorKind::kCorrupt,
                     AllOf(HasSubstr("config.json"), HasSubstr("eos_token_id")),
                     [] { read("{}", R"({"eos_token_id": "</s>"})"); });
}

GenerationConfig sampled() {
  return read(R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.9,
                  "repetition_penalty": 1.2})");
}

TEST(SamplingFor, WithoutOptionsTheFileDecides) {
  GenerateOptions options;
  options.seed = 8;
  const Sampling sampling = sampling_for(sampled(), options);
  EXPECT_FALSE(sampling.greedy);
  EXPECT_EQ(sampling.temperature, 0.6);
  EXPECT_EQ(sampling.top_k, 20);
  EXPECT_EQ(sampling.top_p, 0.9);
  EXPECT_EQ(sampling.repetition_penalty, 1.2);
  EXPECT_EQ(sampling.seed, 8U);
}

TEST(SamplingFor, EachOptionReplacesTheFilesAndLeavesTheOthers) {
  GenerateOptions options;
  options.top_k = 0;
  options.min_p = 0.1;
  options.repetition_penalty = 1;
  const Sampling sampling = sampling_for(sampled(), options);
  EXPECT_FALSE(sampling.greedy);
  EXPECT_EQ(sampling.temperature, 0.6);
  EXPECT_EQ(sampling.top_k, 0);
  EXPECT_EQ(sampling.top_p, 0.9);
  EXPECT_EQ(sampling.min_p, 0.1);
  EXPECT_EQ(sampling.repetition_penalty, 1);
}

TEST(SamplingFor, ATemperatureOfZeroIsGreedyWhateverElseIsAsked) {
  GenerateOptions options;
  options.temperature = 0;
  options.top_k = 5;
  EXPECT_TRUE(sampling_for(sampled(), options).greedy);
  EXPECT_TRUE(sampling_for(GenerationConfig(), options).greedy);
}

TEST(SamplingFor, AnyFlagOfSamplingTurnsAGreedyModelIntoASamplingOne) {
  const GenerationConfig greedy = read(R"({"top_k": 3, "repetition_penalty": 1.3})");
  GenerateOptions temperature, top_k, top_p, min_p, penalty;
  temperature.temperature = 2;
  top_k.top_k = 7;
  top_p.top_p = 0.5;
  min_p.min_p = 0.5;
  for (const GenerateOptions& options : {temperature, top_k, top_p, min_p}) {
    const Sampling sampling = sampling_for(greedy, options);
    EXPECT_FALSE(sampling.greedy);
    EXPECT_EQ(sampling.temperature, options.temperature.value_or(1));
    EXPECT_EQ(sampling.top_k, options.top_k.value_or(0));
    EXPECT_EQ(sampling.top_p, options.top_p.value_or(1));
    EXPECT_EQ(sampling.min_p, options.min_p.value_or(0));
    EXPECT_EQ(sampling.repetition_penalty, 1.3);
  }
  penalty.repetition_penalty = 2;
  EXPECT_TRUE(sampling_for(greedy, penalty).greedy);
  EXPECT_EQ(sampling_for(greedy, penalty).repetition_penalty, 2);
}

TEST(SamplingFor, OptionsThatMakeNoSenseAreUsageErrorsThatNameThem) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto expect_usage = [](const char* name, auto member, auto value) {
    GenerateOptions options;
    options.*member = value;
    SCOPED_TRACE(testing::Message() << name << " " << value);
    test::expect_error(ErrorKind::kUsage, HasSubstr(name),
                       [&] { sampling_for(GenerationConfig(), options); });
  };
  expect_usage("temperature", &GenerateOptions::temperature, -0.1);
  expect_usage("temperature", &GenerateOptions::temperature, nan);
  expect_usage("top_k", &GenerateOptions::top_k, std::int64_t{-1});
  expect_usage("top_p", &GenerateOptions::top_p, 0.0);
  expect_usage("top_p", &GenerateOptions::top_p, 1.5);
  expect_usage("top_p", &GenerateOptions::top_p, nan);
  expect_usage("min_p", &GenerateOptions::min_p, -0.5);
  expect_usage("min_p", &GenerateOptions::min_p, 1.5);
  expect_usage("repetition_penalty", &GenerateOptions::repetition_penalty, 0.0);
  expect_usage("repetition_penalty", &GenerateOptions::repetition_penalty, nan);
}

}  // namespace
}  // namespace haul::runtime
