#pragma once

// What a checkpoint changes in a description made from the config: dtypes, and ties that it breaks.

#include <functional>
#include <span>
#include <string_view>

#include "core/formats/model_files.h"
#include "haul/description.h"

namespace haul::core {

// Whether two tensors of the checkpoint, by index, hold the same weights.
using SameWeights = std::function<bool(std::size_t, std::size_t)>;

// Takes out of each tied group the names that the checkpoint holds with weights of their own.
// Names are looked up as they are, and with the bare model's prefix added or taken away.
void untie_stored(std::span<const HeaderTensor> tensors, const SameWeights& same,
                  std::string_view base_prefix, Description* description);

// Gives each weight the dtype that the checkpoint holds it in.
void set_stored_dtypes(std::span<const HeaderTensor> tensors, std::string_view base_prefix,
                       Description* description);

// Gives every float weight and persistent float buffer this dtype.
void set_dtype(Dtype dtype, ModuleSpec* module);

}  // namespace haul::core
