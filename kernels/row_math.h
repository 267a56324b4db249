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

// What `heads` rows of queries (one after the other) see in the keys and values of `tokens` tokens,
// whose rows lie `key_stride` and `value_stride` apart.
struct Sight {
  const float* queries;
  const float* keys;
  const float* values;
  std::size_t heads;
  std::size_t tokens;
  std::size_t size;  // of a head
  std::size_t key_stride;
  std::size_t value_stride;
  float scale;
  const float* bias;        // added to the scores of `tokens`, or null
  std::size_t bias_stride;  // from head to head
};
// `scores` is room for heads * tokens numbers, `out` is heads rows of `size`.
void see(const Sight& sight, float* scores, float* out);

}  // namespace haul::kernels
