#pragma once

// The Python names that a torch checkpoint may mention, and what each stands for. Any other name
// is refused. Pure.

#include <cstdint>
#include <optional>
#include <string_view>

#include "haul/dtype.h"

namespace haul::core {

enum class TorchRole : std::uint8_t {
  kInert,        // a value that is not needed to find tensors
  kDict,         // a class of dicts
  kTensor,       // builds a dense tensor from a storage
  kParameter,    // wraps a tensor
  kFromType,     // builds a tensor through another function
  kOtherTensor,  // builds a tensor that is not dense; `what` names it
  kTensorType,   // a class of plain tensors
  kStorage,      // a class of storages; no dtype: untyped when `what` is empty, else unsupported
  kDtype,        // an element type; no dtype: one that haul lacks
};

struct TorchGlobal {
  std::string_view name;
  TorchRole role = TorchRole::kInert;
  std::optional<Dtype> dtype = std::nullopt;
  std::string_view what = {};  // in words, for messages
};

// "torch._utils._rebuild_tensor_v2" to a number for torch_global(); nothing for names not allowed.
std::optional<std::uint32_t> find_torch_global(std::string_view name);
const TorchGlobal& torch_global(std::uint32_t number);

}  // namespace haul::core
