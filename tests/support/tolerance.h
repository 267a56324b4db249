#pragma once

// How far the results of two ways to compute the same may lie apart. Pure.

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/core/Tensor.h>

namespace haul::test {

// Of sums of so many terms, as a share of the largest value.
inline double tolerance(c10::ScalarType type, double terms) {
  const double step = type == c10::kBFloat16 ? std::exp2(-8) : std::exp2(-23);
  return step * 4 * std::sqrt(terms);
}

// The largest difference as a share of the largest value.
inline double difference(const at::Tensor& found, const at::Tensor& expected) {
  if (found.sizes() != expected.sizes()) return std::numeric_limits<double>::infinity();
  const double scale = std::max(1.0, expected.abs().max().item<double>());
  return found.sub(expected).abs().max().item<double>() / scale;
}

}  // namespace haul::test
