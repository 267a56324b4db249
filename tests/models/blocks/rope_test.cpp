#include "models/blocks/rope.h"

#include <cmath>
#include <numbers>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>

#include "kernels/rotate.h"
#include "tests/support/expect_error.h"

namespace haul::models {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::int64_t kMaxPositions = 16;
constexpr double kPi = std::numbers::pi;

// The angles of one token at this place, by how far each pair of a head of four turned.
Rotation rotation(const char* config, std::int64_t place, std::int64_t length = 1) {
  const core::Json json = core::parse_json(config, "config.json");
  const RotaryEmbedding rope(core::ConfigReader(json, "config.json"), 4, kMaxPositions);
  return rope->forward(at::tensor({place}, at::kLong).unsqueeze(0), length, at::kFloat);
}

// The token's place is 2.
at::Tensor turned_at_two(const at::Tensor& x) {
  const kernels::Angles angles = rotation("{}", 2).on(at::kCPU);
  return kernels::rotated(x, angles.cosine, angles.sine);
}

void expect_angles(const Rotation& found, double first, double second, double factor = 1) {
  ASSERT_EQ(found.cosine.sizes().vec(), (std::vector<std::int64_t>{1, 1, 4}));
  const double angles[] = {first, second, first, second};
  for (std::int64_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(found.cosine[0][0][i].item<double>(), factor * std::cos(angles[i]), 1e-6) << i;
    EXPECT_NEAR(found.sine[0][0][i].item<double>(), factor * std::sin(angles[i]), 1e-6) << i;
  }
}

// With a base of 10,000 and heads of four, the pairs turn by 1 and 10000^(-2/4) = 0.01 a token.
TEST(Rope, TurnsByThePlaceTimesThePowersOfTheBase) {
  for (const std::int64_t place : {0, 1, 7, 1000}) {
    const auto p = static_cast<double>(place);
    expect_angles(rotation("{}", place), p, 0.01 * p);
    expect_angles(rotation(R"({"rope_theta": 400.0})", place), p, 0.05 * p);
    expect_angles(rotation(R"({"rope_parameters": {"rope_theta": 400.0}})", place), p, 0.05 * p);
    expect_angles(rotation(R"({"rope_scaling": {}, "rope_theta": 400.0})", place), p, 0.05 * p);
    expect_angles(rotation(R"({"rope_scaling": null, "rope_theta": 400.0})", place), p, 0.05 * p);
  }
}

TEST(Rope, LinearScalingSlowsAllPairs) {
  for (const char* config : {R"({"rope_scaling": {"type": "linear", "factor": 4.0}})",
                             R"({"rope_scaling": {"rope_type": "linear", "factor": 4.0}})",
                             R"({"rope_parameters": {"rope_type": "linear", "factor": 4}})"}) {
    expect_angles(rotation(config, 6), 1.5, 0.015);
  }
}

TEST(Rope, DynamicScalingRaisesTheBaseOnceASequenceIsLongerThanTheModelWasTrainedFor) {
  const char* const config = R"({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}})";
  expect_angles(rotation(config, 9, kMaxPositions), 9, 0.09);
  // Twice as long: the base grows (2 * 32 / 16 - 1)^(4 / 2) = 9 times, its root 3 times.
  expect_angles(rotation(config, 9, 2 * kMaxPositions), 9, 0.03);
}

TEST(Rope, Llama3ScalingSlowsTheSlowPairsAlone) {
  // The pairs come round every 2 pi and 200 pi tokens: less than 8192 / 4, and more than 16 / 1.
  const std::string scaling = R"("rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                 "high_freq_factor": 4.0, "original_max_position_embeddings": )";
  expect_angles(rotation(("{\"rope_scaling\": {" + scaling + "8192}}").c_str(), 5), 5, 0.05);
  expect_angles(rotation(("{\"rope_scaling\": {" + scaling + "64}}").c_str(), 5), 5, 0.05 / 8);
  // 2 pi lies between 16 / 4 and 16 / 1.
  const double smooth = (16 / (2 * kPi) - 1) / 3;
  expect_angles(rotation(("{\"rope_scaling\": {" + scaling + "16}}").c_str(), 5),
                5 * ((1 - smooth) / 8 + smooth), 0.05 / 8);
}

TEST(Rope, YarnStretchesTheSlowPairsAndScalesAttention) {
  // Of these pairs the first turns more than 32 times in 4096 tokens, the second 6.5 times: it lies
  // beyond the ramp's end, which is at element ceil(2 log(4096 / (2 pi)) / log(10000)) = 2.
  const Rotation found = rotation(R"({"rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                                      "original_max_position_embeddings": 4096}})",
                                  3);
  const double stretched = 0.5;  // element 1 of a ramp from 0 to 2
  expect_angles(found, 3, 0.03 * (stretched / 4 + 1 - stretched), 0.1 * std::log(4.0) + 1);
}

TEST(Rope, RotatedTurnsEachElementWithTheOneHalfAHeadAway) {
  const at::Tensor x = at::tensor({1.0F, 2.0F, 3.0F, 4.0F}).view({1, 1, 1, 4});
  const at::Tensor turned = turned_at_two(x);
  const double cosine[] = {std::cos(2.0), std::cos(0.02)};
  const double sine[] = {std::sin(2.0), std::sin(0.02)};
  const double expected[] = {1 * cosine[0] - 3 * sine[0], 2 * cosine[1] - 4 * sine[1],
                             3 * cosine[0] + 1 * sine[0], 4 * cosine[1] + 2 * sine[1]};
  for (std::int64_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(turned[0][0][0][i].item<double>(), expected[i], 1e-6) << i;
  }
}

TEST(Rope, RotatedLeavesElementsBeyondThoseThatTurn) {
  const at::Tensor x = at::tensor({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F}).view({1, 1, 1, 6});
  const at::Tensor turned = turned_at_two(x);
  ASSERT_EQ(turned.sizes(), x.sizes());
  EXPECT_TRUE(at::equal(turned.narrow(-1, 4, 2), x.narrow(-1, 4, 2)));
  EXPECT_TRUE(at::equal(turned.narrow(-1, 0, 4), turned_at_two(x.narrow(-1, 0, 4))));
}

TEST(Rope, AScalingThatIsNotKnownIsNamedWithThoseThatAre) {
  try {
    rotation(R"({"rope_scaling": {"rope_type": "spiral", "factor": 2}})", 1);
    FAIL() << "no error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("spiral"));
    EXPECT_THAT(error.hint(), AllOf(HasSubstr("linear"), HasSubstr("yarn")));
  }
}

TEST(Rope, AScalingWithoutItsFactorOrOfAnotherTypeNamesTheFileAndTheKey) {
  for (const char* config : {R"({"rope_scaling": {"rope_type": "linear"}})",
                             R"({"rope_scaling": {"rope_type": "dynamic"}})",
                             R"({"rope_scaling": {"rope_type": "llama3"}})",
                             R"({"rope_scaling": {"rope_type": "linear", "factor": "two"}})",
                             R"({"rope_scaling": {"rope_type": "linear", "factor": null}})"}) {
    test::expect_error(ErrorKind::kCorrupt, AllOf(HasSubstr("config.json"), HasSubstr("factor")),
                       [&] { rotation(config, 1); });
  }
  test::expect_error(ErrorKind::kCorrupt,
                     AllOf(HasSubstr("config.json"), HasSubstr("rope_scaling")),
                     [] { rotation(R"({"rope_scaling": "linear"})", 1); });
}

}  // namespace
}  // namespace haul::models
