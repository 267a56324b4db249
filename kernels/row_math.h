#pragma once

// What a model does to a row of numbers beside multiplying it with weights. Pure; float32.

#include <cstddef>
#include <cstdint>

namespace haul::kernels {

// Functions x * sigmoid(f(x)) that gates are made of.
enum class Curve : std::int64_t {
  kSilu,        // f(x) = x
  kGeluByTanh,  // the one by tanh
};

// out = x / sqrt(mean of squares + epsilon) * weight. `out` may be `x`.
void normed_row(const float* x, const float* weight, float epsilon, std::size_t size, float* out);

// Turns each pair (x[i], x[i + size / 2]). `out` may be `x`.
void turned_row(const float* x, const float* cosine, const float* sine, std::size_t size,
                float* out);

// values[i] *= curve(gate[i])
void gate_row(const float* gate, Curve curve, std::size_t size, float* values);

}  // namespace haul::kernels
