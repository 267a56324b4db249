#include "runtime/generate/rehearsal.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include "core/describe/describe.h"
#include "haul/torch/empty_weights.h"
#include "kernels/likeliest.h"
#include "models/families/model.h"
#include "runtime/dispatch/model_tensors.h"
#include "runtime/generate/kv_cache.h"
#include "runtime/generate/replayed_pass.h"

namespace haul::runtime {
namespace {

constexpr std::int64_t kPrompt = 16;
// At least: kernels have widths that are too small for them. The other where there is little room.
constexpr std::int64_t kWidths[] = {1024, 256};

core::Json small(core::Json config, const Dimensions& d, std::int64_t least) {
  const std::int64_t share =
      std::max<std::int64_t>(1, d.heads / std::max<std::int64_t>(1, d.kv_heads));
  const std::int64_t kv_heads = (least + share * d.head_size - 1) / (share * d.head_size);
  const std::int64_t width = kv_heads * share * d.head_size;
  const auto set = [&](std::int64_t value, std::initializer_list<const char*> keys) {
    for (const char* const key : keys) {
      if (config.contains(key) && !config.at(key).is_null()) config[key] = value;
    }
  };
  set(1, {"num_hidden_layers", "n_layer", "num_layers"});
  set(256, {"vocab_size"});
  set(width, {"hidden_size", "n_embd", "n_embed", "word_embed_proj_dim"});
  set(kv_heads * share, {"num_attention_heads", "n_head"});
  set(kv_heads, {"num_key_value_heads"});
  set(2 * width, {"intermediate_size", "n_inner", "ffn_dim"});
  config.erase("layer_types");
  return config;
}

std::shared_ptr<models::Model> made(const core::Json& config) {
  const Description description =
      core::describe_config(config, "a small model", {false, core::WeightDtype::kStored});
  const EmptyWeights no_random_numbers;  // which are for whoever asked for a seed
  return models::make_model(core::ConfigReader(config, "a small model"), description);
}

}  // namespace

bool rehearse(const core::Json& config, const Dimensions& dimensions, const Rehearsal& rehearsal) {
  const std::int64_t tokens =
      dimensions.max_positions == 0 ? kPrompt : std::min(kPrompt, dimensions.max_positions - 1);
  if (tokens < 1) return false;
  const at::Device device = rehearsal.device;
  const c10::InferenceMode no_gradients;
  const auto room =  // numbers
      static_cast<std::int64_t>(rehearsal.room / byte_count(rehearsal.dtype, {1}));
  std::shared_ptr<models::Model> model;
  std::int64_t all = 0;
  for (const std::int64_t width : kWidths) {
    model = made(small(config, dimensions, width));
    std::int64_t largest = all = 0;
    for (const at::Tensor& weight : model->parameters()) {
      largest = std::max(largest, weight.numel());
      all += weight.numel();
    }
    if (largest <= room) break;
    model.reset();
  }
  if (!model) return false;
  model->eval();
  const auto become = [](const at::Tensor& tensor, const at::Tensor& changed) {
    tensor.unsafeGetTensorImpl()->shallow_copy_from(changed.getIntrusivePtr());
  };
  const auto options = at::TensorOptions(device).dtype(to_scalar_type(rehearsal.dtype));
  // Each weight is some of these: there may be no room for all. But not fewer than there may be:
  // what is freed afterwards is for the model's own numbers, which do not fit where little was.
  const at::Tensor zeros = at::zeros({std::min(all, room)}, options);
  for (const at::Tensor& weight : model->parameters()) {
    become(weight, zeros.narrow(0, 0, weight.numel()).view(weight.sizes()));
  }
  for (const at::Tensor& buffer : model->buffers()) become(buffer, buffer.to(device));
  std::vector<std::int64_t> windows = model->windows();
  windows.resize(1);
  ModelCache cache(windows, tokens + 1);
  const auto pass = [&](const models::Inputs& inputs) { return model->forward(inputs); };
  const auto ids = at::TensorOptions(device).dtype(at::kLong);
  models::Inputs prompt{at::zeros({1, tokens}, ids)};
  prompt.cache = &cache;
  prompt.last = 1;
  at::Tensor logits = pass(prompt);
  cache.advance(tokens);
  if (rehearsal.replayed && model->can_be_replayed() && cache.keeps_all()) {
    ReplayedPass replayed(device, pass);
    replayed.start(at::zeros({1, 1}, at::kLong), cache);
    replayed.take();
    return true;
  }
  models::Inputs token{kernels::likeliest(logits.select(1, 0)).unsqueeze(1)};
  token.cache = &cache;
  token.last = 1;
  kernels::likeliest(pass(token).select(1, 0)).item();
  return true;
}

}  // namespace haul::runtime
