#pragma once

// What the families share around their layers.

#include <cstdint>
#include <optional>

#include "models/blocks/attention.h"
#include "models/families/model.h"

namespace haul::models {

// The places of a pass's tokens: as given, or one after another.
at::Tensor positions_of(const Inputs& inputs, std::int64_t past);
// Each token of a pass looks at itself and those before it.
MaskRequest mask_request(const Inputs& inputs, std::int64_t past, at::Device device);
// Of x (B, T, C): the last `count` tokens; 0: all.
at::Tensor last_tokens(const at::Tensor& x, std::int64_t count);

// "h.0", "h.1", … for the layers in a list called "h".
std::vector<std::string> layer_names(const std::string& list, std::size_t count);

std::optional<std::int64_t> padding_id(const core::ConfigReader& config);
// Of scores (B, T, labels): those at the last token of each sequence that is not padding. Throws
// Error(kUsage) for several sequences without a padding id.
at::Tensor of_last_token(const at::Tensor& scores, const at::Tensor& ids,
                         std::optional<std::int64_t> padding);

}  // namespace haul::models
