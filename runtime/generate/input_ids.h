#pragma once

// Token ids as a model takes them.

#include <cstdint>
#include <span>

#include "haul/torch/model.h"

namespace haul::runtime {

// Throws Error(kUsage) for no ids at all and for one that the model's table lacks.
void check_ids(std::span<const TokenId> ids, std::int64_t vocabulary);

// (1, T), for one pass. As above, and for more than the context holds.
at::Tensor one_sequence(std::span<const TokenId> ids, const LoadedModel::State& state);

}  // namespace haul::runtime
