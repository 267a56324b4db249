#include "model.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/scaled_dot_product_attention.h>

namespace nn = torch::nn;
using torch::Tensor;

namespace {

nn::LayerNorm layer_norm(const GptConfig& config) {
  return nn::LayerNorm(nn::LayerNormOptions({config.n_embd}).eps(config.layer_norm_epsilon));
}

}  // namespace

AttentionImpl::AttentionImpl(const GptConfig& config)
    : n_head(config.n_head),
      c_attn(register_module("c_attn", nn::Linear(config.n_embd, 3 * config.n_embd))),
      c_proj(register_module("c_proj", nn::Linear(config.n_embd, config.n_embd))) {}

Tensor AttentionImpl::forward(const Tensor& x) {
  const std::int64_t B = x.size(0), T = x.size(1), C = x.size(2);
  const std::vector<Tensor> parts = c_attn(x).split(C, 2);
  const auto heads = [&](const Tensor& part) {
    return part.view({B, T, n_head, C / n_head}).transpose(1, 2);  // (B, H, T, D)
  };
  const Tensor y = at::scaled_dot_product_attention(heads(parts[0]), heads(parts[1]),
                                                    heads(parts[2]), {}, 0.0, /*is_causal=*/true);
  return c_proj(y.transpose(1, 2).reshape({B, T, C}));
}

MlpImpl::MlpImpl(const GptConfig& config)
    : c_fc(register_module("c_fc", nn::Linear(config.n_embd, 4 * config.n_embd))),
      c_proj(register_module("c_proj", nn::Linear(4 * config.n_embd, config.n_embd))),
      act(register_module("act", nn::GELU(nn::GELUOptions().approximate("tanh")))) {}

Tensor MlpImpl::forward(const Tensor& x) {
  return c_proj(act(c_fc(x)));
}

BlockImpl::BlockImpl(const GptConfig& config)
    : ln_1(register_module("ln_1", layer_norm(config))),
      attn(register_module("attn", Attention(config))),
      ln_2(register_module("ln_2", layer_norm(config))),
      mlp(register_module("mlp", Mlp(config))) {}

Tensor BlockImpl::forward(Tensor x) {
  x = x + attn(ln_1(x));
  return x + mlp(ln_2(x));
}

TransformerImpl::TransformerImpl(const GptConfig& config)
    : wte(register_module("wte", nn::Embedding(config.vocab_size, config.n_embd))),
      wpe(register_module("wpe", nn::Embedding(config.n_positions, config.n_embd))),
      h(register_module("h", nn::ModuleList())),
      ln_f(register_module("ln_f", layer_norm(config))) {
  for (std::int64_t i = 0; i < config.n_layer; ++i) h->push_back(Block(config));
}

Tensor TransformerImpl::forward(const Tensor& ids) {
  const Tensor positions = at::arange(ids.size(1), ids.options());
  Tensor x = wte(ids) + wpe(positions);  // (B, T, C)
  for (const auto& block : *h) x = block->as<BlockImpl>()->forward(x);
  return ln_f(x);
}

GptImpl::GptImpl(const GptConfig& config)
    : transformer(register_module("transformer", Transformer(config))),
      lm_head(register_module(
          "lm_head", nn::Linear(nn::LinearOptions(config.n_embd, config.vocab_size).bias(false)))) {
}

Tensor GptImpl::forward(const Tensor& ids) {
  return lm_head(transformer(ids).select(1, -1));
}
