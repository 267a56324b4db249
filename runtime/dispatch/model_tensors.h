#pragma once

// A module of either kind as data: its tree, and its tensors by name. One thread.

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "haul/description.h"
#include "haul/torch/dispatch.h"

namespace haul::runtime {

struct ModelTensor {
  std::string name;
  at::Tensor tensor;  // the very one that the model holds
  bool is_buffer = false;
};

struct ModelTensors {
  Description description;
  std::vector<ModelTensor> all;  // parameters and buffers, every name, in the tree's order
};

// Class names lose their namespace and "Impl". Tensors that share memory are tied. Throws
// Error(kUnsupported) for a dtype that haul has no name for.
ModelTensors read_model(const ModelRef& model);

// The part of a model at or below these names of modules and tensors, and with it every other name
// of the same tensors. No names: all of it.
ModelTensors only(ModelTensors model, const std::vector<std::string>& names);
Description only(Description description, const std::vector<std::string>& names);

Dtype to_dtype(c10::ScalarType type);
// Throws Error(kUnsupported) for the types that torch lacks.
c10::ScalarType to_scalar_type(Dtype dtype);

}  // namespace haul::runtime
