#include "core/describe/gguf_rope.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include <fmt/format.h>

#include "haul/error.h"

namespace haul::core {
namespace {

constexpr std::string_view kFactors = "rope_freqs.weight";
// The conversion always assumes this length.
constexpr double kOriginalPositions = 8192;

// Llama 3 leaves short waves alone, stretches long ones by `factor`, and blends between.
struct Llama3Scaling {
  double factor = 1;
  double low = 1;
  double high = 4;

  double at(double waves_per_token) const {
    const double turns = kOriginalPositions * waves_per_token;
    if (turns > high) return 1;
    if (turns < low) return factor;
    const double smooth = (turns - low) / (high - low);
    return 1 / ((1 - smooth) / factor + smooth);
  }
};

struct Point {
  double waves_per_token;
  double factor;
};

bool fits(const Llama3Scaling& scaling, const std::vector<Point>& points) {
  constexpr double kTolerance = 1e-3;
  return std::all_of(points.begin(), points.end(), [&](const Point& point) {
    return std::abs(scaling.at(point.waves_per_token) - point.factor) <= kTolerance * point.factor;
  });
}

// The line through the blended points, by least squares, tells where blending begins and ends.
Llama3Scaling fitted(double factor, const std::vector<Point>& points) {
  double n = 0;
  double sum_x = 0;
  double sum_y = 0;
  double sum_xx = 0;
  double sum_xy = 0;
  for (const Point& point : points) {
    if (point.factor <= 1 || point.factor >= factor) continue;
    const double x = kOriginalPositions * point.waves_per_token;
    const double y = (1 / point.factor - 1 / factor) / (1 - 1 / factor);
    n += 1;
    sum_x += x;
    sum_y += y;
    sum_xx += x * x;
    sum_xy += x * y;
  }
  const double slope = (n * sum_xy - sum_x * sum_y) / (n * sum_xx - sum_x * sum_x);
  const double start = (sum_y - slope * sum_x) / n;
  const auto rounded = [](double value) { return std::round(value * 1000) / 1000; };
  return {factor, rounded(-start / slope), rounded((1 - start) / slope)};
}

std::vector<Point> read_factors(const GgufSource& source, double theta, std::int64_t head_size) {
  const StoredTensor& tensor = *source.checkpoint().find(kFactors);
  const auto bytes = source.checkpoint().bytes(tensor);
  const auto count = static_cast<std::size_t>(head_size / 2);
  if (tensor.coding != Coding::kPlain || tensor.dtype != Dtype::kF32 ||
      bytes.size() != count * sizeof(float)) {
    throw Error(ErrorKind::kCorrupt, fmt::format("{}: tensor '{}': expected {} values of F32",
                                                 source.name(), kFactors, count));
  }
  std::vector<Point> points(count);
  for (std::size_t i = 0; i < count; ++i) {
    float factor = 0;
    std::memcpy(&factor, bytes.data() + i * sizeof(float), sizeof(float));
    const double exponent = 2 * static_cast<double>(i) / static_cast<double>(head_size);
    points[i] = {std::pow(theta, -exponent) / (2 * std::numbers::pi), factor};
  }
  return points;
}

Json llama3_scaling(const GgufSource& source, double theta, std::int64_t head_size) {
  const std::vector<Point> points = read_factors(source, theta, head_size);
  Llama3Scaling scaling;
  for (const Point& point : points) scaling.factor = std::max(scaling.factor, point.factor);
  if (scaling.factor == 1 && fits(scaling, points)) return nullptr;
  if (!fits(scaling, points)) scaling = fitted(scaling.factor, points);
  if (!fits(scaling, points)) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("{}: tensor '{}': frequencies scaled in a way that is not Llama 3's",
                            source.name(), kFactors));
  }
  return {{"rope_type", "llama3"},
          {"factor", scaling.factor},
          {"low_freq_factor", scaling.low},
          {"high_freq_factor", scaling.high},
          {"original_max_position_embeddings", static_cast<std::int64_t>(kOriginalPositions)}};
}

Json yarn_scaling(const GgufSource& source) {
  Json result = {{"rope_type", "yarn"}, {"factor", source.number("rope.scaling.factor")}};
  if (const auto original = source.optional_size("rope.scaling.original_context_length")) {
    result["original_max_position_embeddings"] = *original;
  }
  constexpr std::pair<std::string_view, const char*> kNumbers[] = {
      {"rope.scaling.yarn_attn_factor", "attention_factor"},
      {"rope.scaling.yarn_beta_fast", "beta_fast"},
      {"rope.scaling.yarn_beta_slow", "beta_slow"},
  };
  for (const auto& [from, to] : kNumbers) {
    if (const auto value = source.optional_number(from)) result[to] = *value;
  }
  return result;
}

}  // namespace

Json gguf_rope_scaling(const GgufSource& source, double theta, std::int64_t head_size) {
  const std::string type = source.text("rope.scaling.type", "none");
  if (type == "none") {
    // How old files wrote a linear one.
    if (const auto factor = source.optional_number("rope.scale_linear"); factor && *factor != 1) {
      return {{"rope_type", "linear"}, {"factor", *factor}};
    }
    return source.has(kFactors) ? llama3_scaling(source, theta, head_size) : Json(nullptr);
  }
  if (type == "linear") {
    return {{"rope_type", "linear"}, {"factor", source.number("rope.scaling.factor")}};
  }
  if (type == "yarn" &&
      source.optional_number("rope.scaling.yarn_log_multiplier").value_or(0) == 0) {
    return yarn_scaling(source);
  }
  throw Error(ErrorKind::kUnsupported,
              fmt::format("{}: rotary positions scaled by \"{}\", which haul does not read",
                          source.name(), type));
}

}  // namespace haul::core
