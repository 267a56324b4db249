#include "models/families/tokens.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include "haul/error.h"

namespace haul::models {

at::Tensor positions_of(const Inputs& inputs, std::int64_t past) {
  if (inputs.positions.defined()) return inputs.positions;
  return at::arange(past, past + inputs.ids.size(1), inputs.ids.options()).unsqueeze(0);
}

MaskRequest mask_request(const Inputs& inputs, std::int64_t past, at::Device device) {
  const at::Tensor replayed_past =
      inputs.cache == nullptr ? at::Tensor() : inputs.cache->replayed_past();
  return {inputs.ids.size(1), past, 0, inputs.attended, device, replayed_past};
}

at::Tensor last_tokens(const at::Tensor& x, std::int64_t count) {
  if (count == 0 || count >= x.size(1)) return x;
  return x.narrow(1, x.size(1) - count, count);
}

std::vector<std::string> layer_names(const std::string& list, std::size_t count) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i) names.push_back(list + "." + std::to_string(i));
  return names;
}

std::optional<std::int64_t> padding_id(const core::ConfigReader& config) {
  if (!config.has("pad_token_id")) return std::nullopt;
  return static_cast<std::int64_t>(config.number("pad_token_id", 0));
}

at::Tensor of_last_token(const at::Tensor& scores, const at::Tensor& ids,
                         std::optional<std::int64_t> padding) {
  if (!padding) {
    if (ids.size(0) > 1) {
      throw Error(ErrorKind::kUsage,
                  "several sequences cannot be classified at once: the config has no pad_token_id");
    }
    return scores.select(1, scores.size(1) - 1);
  }
  const at::Tensor places = at::arange(ids.size(1), ids.options());
  const at::Tensor last = (places * (ids != *padding)).argmax(-1);  // (B)
  const at::Tensor index = last.view({-1, 1, 1}).expand({-1, 1, scores.size(2)});
  return scores.gather(1, index).squeeze(1);
}

}  // namespace haul::models
