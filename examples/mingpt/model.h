#pragma once

// A GPT in stock torch::nn, with GPT-2's arithmetic. In comments: B batch, T tokens, C hidden,
// H heads, D head size, V vocabulary.

#include <cstdint>

#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

// The defaults are GPT-2 XL's.
struct GptConfig {
  std::int64_t n_layer = 48;
  std::int64_t n_head = 25;
  std::int64_t n_embd = 1600;
  std::int64_t vocab_size = 50257;
  std::int64_t n_positions = 1024;
  double layer_norm_epsilon = 1e-5;
};

struct AttentionImpl : torch::nn::Module {
  explicit AttentionImpl(const GptConfig& config);
  torch::Tensor forward(const torch::Tensor& x);

  std::int64_t n_head;
  torch::nn::Linear c_attn, c_proj;
};
TORCH_MODULE(Attention);

struct MlpImpl : torch::nn::Module {
  explicit MlpImpl(const GptConfig& config);
  torch::Tensor forward(const torch::Tensor& x);

  torch::nn::Linear c_fc, c_proj;
  torch::nn::GELU act;
};
TORCH_MODULE(Mlp);

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(const GptConfig& config);
  torch::Tensor forward(torch::Tensor x);

  torch::nn::LayerNorm ln_1;
  Attention attn;
  torch::nn::LayerNorm ln_2;
  Mlp mlp;
};
TORCH_MODULE(Block);

struct TransformerImpl : torch::nn::Module {
  explicit TransformerImpl(const GptConfig& config);
  torch::Tensor forward(const torch::Tensor& ids);

  torch::nn::Embedding wte, wpe;
  torch::nn::ModuleList h;
  torch::nn::LayerNorm ln_f;
};
TORCH_MODULE(Transformer);

struct GptImpl : torch::nn::Module {
  explicit GptImpl(const GptConfig& config);
  // The logits of the token that follows: (B, T) ids to (B, V).
  torch::Tensor forward(const torch::Tensor& ids);

  Transformer transformer;
  torch::nn::Linear lm_head;
};
TORCH_MODULE(Gpt);
