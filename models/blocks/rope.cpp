#include "models/blocks/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/where.h>

#include "haul/error.h"
#include "kernels/angles.h"

namespace haul::models {
namespace {

// Where older and newer configs keep what concerns rotary positions.
core::ConfigReader rope_section(const core::ConfigReader& config) {
  const bool old_style = config.has("rope_scaling") && !config.find({"rope_scaling"})->empty();
  return config.section(old_style ? "rope_scaling" : "rope_parameters");
}

double required(const core::ConfigReader& rope, std::string_view key) {
  if (!rope.has(key)) rope.fail(key, "is missing from the rotary scaling");
  return rope.number(key, 0);
}

// Positions that the model was first trained on.
double original_positions(const core::ConfigReader& config, const core::ConfigReader& rope,
                          std::int64_t max_positions) {
  constexpr std::string_view kKey = "original_max_position_embeddings";
  if (config.has(kKey)) return config.number(kKey, 0);
  return rope.number(kKey, static_cast<double>(max_positions));
}

}  // namespace

RotaryEmbeddingImpl::RotaryEmbeddingImpl(const core::ConfigReader& config, std::int64_t head_size,
                                         std::int64_t max_positions)
    : size_(head_size), max_positions_(max_positions) {
  const core::ConfigReader rope = rope_section(config);
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  base_ = rope.number("rope_theta", config.number("rope_theta", 10000.0));
  if (type != "default") {
    const double share =
        rope.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0));
    size_ = static_cast<std::int64_t>(static_cast<double>(head_size) * share);
  }
  inv_freq_ = frequencies(base_);
  if (type == "linear") {
    inv_freq_ = inv_freq_ / required(rope, "factor");
  } else if (type == "dynamic") {
    dynamic_factor_ = required(rope, "factor");
  } else if (type == "llama3") {
    scale_like_llama3(config, rope);
  } else if (type == "yarn") {
    scale_by_yarn(config, rope);
  } else if (type != "default") {
    throw Error(ErrorKind::kUnsupported, "rotary scaling '" + type + "' is not known",
                "known are default, linear, dynamic, yarn and llama3");
  }
  inv_freq_ = register_buffer("inv_freq", inv_freq_);
  register_buffer("original_inv_freq", inv_freq_.clone());
}

at::Tensor RotaryEmbeddingImpl::frequencies(double base) const {
  const at::Tensor exponents = at::arange(0, size_, 2, at::kFloat) / size_;
  return 1.0 / at::pow(base, exponents);
}

void RotaryEmbeddingImpl::scale_like_llama3(const core::ConfigReader& config,
                                            const core::ConfigReader& rope) {
  const double factor = required(rope, "factor");
  const double low = required(rope, "low_freq_factor");
  const double high = required(rope, "high_freq_factor");
  const double original = original_positions(config, rope, max_positions_);
  const at::Tensor length = 2 * std::numbers::pi / inv_freq_;
  const at::Tensor is_long = length > original / low;
  const at::Tensor is_short = length < original / high;
  const at::Tensor smooth = (original / length - low) / (high - low);
  const at::Tensor between = (1 - smooth) * inv_freq_ / factor + smooth * inv_freq_;
  inv_freq_ = at::where(is_long, inv_freq_ / factor, at::where(is_short, inv_freq_, between));
}

void RotaryEmbeddingImpl::scale_by_yarn(const core::ConfigReader& config,
                                        const core::ConfigReader& rope) {
  const double original = original_positions(config, rope, max_positions_);
  const double factor = rope.has("factor") ? rope.number("factor", 1)
                                           : static_cast<double>(max_positions_) / original;
  const auto scale = [&](double weight) {
    return factor <= 1 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
  };
  if (rope.has("attention_factor")) {
    attention_factor_ = rope.number("attention_factor", 1);
  } else if (rope.number("mscale", 0) != 0 && rope.number("mscale_all_dim", 0) != 0) {
    attention_factor_ = scale(rope.number("mscale", 0)) / scale(rope.number("mscale_all_dim", 0));
  } else {
    attention_factor_ = scale(1);
  }
  // Elements that turn often keep their speed, those that turn rarely are stretched.
  const double size = static_cast<double>(size_);
  const auto element_of = [&](double turns) {
    return size * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(base_));
  };
  const auto or_default = [&](std::string_view key, double value) {
    const double given = rope.number(key, 0);
    return given == 0 ? value : given;
  };
  double first = element_of(or_default("beta_fast", 32));
  double last = element_of(or_default("beta_slow", 1));
  if (rope.flag("truncate", true)) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, size - 1);
  if (first == last) last += 0.001;
  const at::Tensor stretched =
      ((at::arange(size_ / 2, at::kFloat) - first) / (last - first)).clamp(0, 1);
  inv_freq_ = inv_freq_ / factor * stretched + inv_freq_ * (1 - stretched);
}

Rotation RotaryEmbeddingImpl::forward(const at::Tensor& positions, std::int64_t length,
                                      at::ScalarType dtype) const {
  at::Tensor speeds = inv_freq_;
  if (dynamic_factor_ > 0 && length > max_positions_) {
    const double size = static_cast<double>(size_);
    const double stretch =
        dynamic_factor_ * static_cast<double>(length) / static_cast<double>(max_positions_) -
        (dynamic_factor_ - 1);
    speeds = frequencies(base_ * std::pow(stretch, size / (size - 2)));
  }
  auto [cosine, sine] = kernels::angles(positions, speeds, attention_factor_, dtype);
  return {std::move(cosine), std::move(sine)};
}

}  // namespace haul::models
