#pragma once

// Some layers of linear maps, and one number that tells whether their weights are right.

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

namespace haul::test {

inline constexpr int kLayers = 4;
inline constexpr int kWidth = 1024;
inline constexpr std::size_t kLayersBytes = std::size_t{kLayers} * kWidth * (kWidth + 1) * 4;

// Nothing is drawn in a scope of empty weights.
inline torch::nn::Sequential layers(std::uint64_t seed) {
  torch::manual_seed(seed);
  torch::nn::Sequential model;
  for (int i = 0; i < kLayers; ++i) model->push_back(torch::nn::Linear(kWidth, kWidth));
  return model;
}

inline double output_of(torch::nn::Sequential& model) {
  const at::NoGradGuard no_gradients;
  const at::Tensor x = torch::arange(kWidth).remainder(7).to(model->parameters()[0].dtype());
  return model->forward(x).to(torch::kDouble).abs().sum().item<double>();
}

}  // namespace haul::test
