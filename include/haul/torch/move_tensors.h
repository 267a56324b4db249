#pragma once

// Values of calls, moved between devices: tensors, and what holds them. Anything else passes as it
// is. Moves are seen by autograd.

#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

namespace haul {

// The device of the first tensor among the values.
std::optional<c10::Device> device_of_value(const at::Tensor& tensor);
std::optional<c10::Device> device_of_value(const c10::IValue& value);
template <typename T>
std::optional<c10::Device> device_of_value(const T& value) {
  if constexpr (std::is_convertible_v<const T&, const at::Tensor&>) {
    return device_of_value(static_cast<const at::Tensor&>(value));
  } else if constexpr (requires { device_of_value(*value.begin()); }) {
    for (const auto& part : value) {
      if (const auto device = device_of_value(part)) return device;
    }
  }
  return std::nullopt;
}
template <typename... Values>
std::optional<c10::Device> first_device(const Values&... values) {
  std::optional<c10::Device> device;
  ((device = device ? device : device_of_value(values)), ...);
  return device;
}

class InputOutput {
 public:
  InputOutput(std::optional<c10::Device> inputs, std::vector<std::string> skip_keys,
              bool outputs_back = true)
      : inputs_(inputs), skip_keys_(std::move(skip_keys)), outputs_back_(outputs_back) {}

  template <typename T>
  std::decay_t<T> in(T&& value) const {
    return inputs_ ? moved(std::forward<T>(value), *inputs_) : std::decay_t<T>(value);
  }
  template <typename T>
  T back(T value, const std::optional<c10::Device>& home) const {
    return home && outputs_back_ ? moved(std::move(value), *home) : value;
  }

 private:
  at::Tensor tensor_moved(const at::Tensor& tensor, c10::Device to) const;
  c10::IValue value_moved(const c10::IValue& value, c10::Device to) const;

  template <typename T>
  std::decay_t<T> moved(T&& value, c10::Device to) const {
    using Value = std::decay_t<T>;
    if constexpr (std::is_same_v<Value, at::Tensor>) {
      return tensor_moved(value, to);
    } else if constexpr (std::is_same_v<Value, c10::IValue>) {
      return value_moved(value, to);
    } else if constexpr (requires(Value v) { std::get<0>(v), std::tuple_size<Value>::value; }) {
      Value result = std::forward<T>(value);
      std::apply([&](auto&... part) { ((part = moved(std::move(part), to)), ...); }, result);
      return result;
    } else if constexpr (requires(Value v) { moved_parts(v, to); }) {
      Value result = std::forward<T>(value);
      moved_parts(result, to);
      return result;
    } else {
      return std::forward<T>(value);
    }
  }
  template <typename T>
  void moved_parts(std::vector<T>& values, c10::Device to) const {
    for (T& value : values) value = moved(std::move(value), to);
  }
  template <typename T>
  void moved_parts(std::optional<T>& value, c10::Device to) const {
    if (value) value = moved(std::move(*value), to);
  }

  std::optional<c10::Device> inputs_;  // nothing: the model is an ordinary one
  std::vector<std::string> skip_keys_;
  bool outputs_back_;
};

}  // namespace haul
