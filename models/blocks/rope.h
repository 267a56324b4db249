#pragma once

// Rotary positions: each pair of a head's elements turns with the token's place. Scalings for
// longer contexts as Transformers computes them: linear, dynamic, yarn, llama3.

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "core/describe/config_reader.h"
#include "kernels/angles.h"
#include "models/blocks/copies.h"

namespace haul::models {

// The angles of a pass's tokens: (B or 1, T, D), of the dtype they are used in.
struct Rotation {
  kernels::Angles on(at::Device device) const {
    return {cosines.of(cosine, device), sines.of(sine, device)};
  }

  at::Tensor cosine;
  at::Tensor sine;
  Copies cosines = {};
  Copies sines = {};
};

class RotaryEmbeddingImpl : public torch::nn::Module {
 public:
  // Throws Error(kUnsupported) for a scaling that is not known.
  RotaryEmbeddingImpl(const core::ConfigReader& config, std::int64_t head_size,
                      std::int64_t max_positions);

  // `positions` (B or 1, T). `length` is that of the longest sequence so far, which the dynamic
  // scaling looks at.
  Rotation forward(const at::Tensor& positions, std::int64_t length, at::ScalarType dtype) const;
  bool looks_at_length() const { return dynamic_factor_ > 0; }

 private:
  at::Tensor frequencies(double base) const;
  void scale_like_llama3(const core::ConfigReader& config, const core::ConfigReader& rope);
  void scale_by_yarn(const core::ConfigReader& config, const core::ConfigReader& rope);

  std::int64_t size_;  // elements of a head that turn
  std::int64_t max_positions_;
  double base_;
  double attention_factor_ = 1;
  double dynamic_factor_ = 0;  // 0: not dynamic
  at::Tensor inv_freq_;
};
TORCH_MODULE(RotaryEmbedding);

}  // namespace haul::models
