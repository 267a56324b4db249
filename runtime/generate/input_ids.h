#pragma once

// Token ids as a model takes them.

#include <cstdint>
#include <span>

#include "haul/torch/model.h"

namespace haul::runtime {

// Throws Error(kUsage) for no ids at all and for one that the model has no row for, which would end
// inside a kernel.
void check_ids(const at::Tensor& ids, const LoadedModel::State& state);

// (1, T), for one pass. Throws as above, and for more than the context holds.
at::Tensor one_sequence(std::span<const TokenId> ids, const LoadedModel::State& state);

}  // namespace haul::runtime
