#pragma once

// The stock modules that every family is built from, named and shaped as torch has them.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "haul/description.h"

namespace haul::core {

enum class Bias { kNone, kPresent };

inline Bias bias_if(bool present) {
  return present ? Bias::kPresent : Bias::kNone;
}

// A module with these children, in this order.
template <typename... Children>
ModuleSpec module(std::string_view name, std::string_view class_name, Children&&... children) {
  ModuleSpec result;
  result.name = name;
  result.class_name = class_name;
  result.children.reserve(sizeof...(children));
  (result.children.push_back(std::forward<Children>(children)), ...);
  return result;
}

// Weight (out, in), as torch's Linear.
ModuleSpec linear(std::string_view name, std::int64_t in, std::int64_t out,
                  Bias bias = Bias::kPresent);
ModuleSpec embedding(std::string_view name, std::int64_t count, std::int64_t width);
ModuleSpec layer_norm(std::string_view name, std::int64_t width, Bias bias = Bias::kPresent);
// A norm without bias, under the class name of its model.
ModuleSpec rms_norm(std::string_view name, std::string_view class_name, std::int64_t width);
// Square kernel, no bias, no groups: weight (out, in, kernel, kernel).
ModuleSpec conv2d(std::string_view name, std::int64_t in, std::int64_t out, std::int64_t kernel);
ModuleSpec dropout(std::string_view name);
// The module behind a config's activation ("gelu_new", "silu", …). Throws Error(kUnsupported) for
// one that Transformers does not know.
ModuleSpec activation(std::string_view name, const std::string& function);

void add_parameter(ModuleSpec* module, std::string_view name, Shape shape);
void add_buffer(ModuleSpec* module, std::string_view name, Dtype dtype, Shape shape,
                bool persistent);

// A ModuleList of `count` copies of a block, named 0, 1, ….
ModuleSpec repeated(std::string_view name, std::int64_t count, const ModuleSpec& block);

}  // namespace haul::core
