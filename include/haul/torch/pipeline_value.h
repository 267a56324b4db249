#pragma once

// What passes from block to block of a pipeline, and how C++ types become it: tensors, numbers,
// flags and texts; vectors, pairs and tuples of them; maps of them by name; as deep as one likes.

#include <concepts>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

namespace haul {

struct PipelineValue {
  using List = std::vector<PipelineValue>;
  using Map = std::map<std::string, PipelineValue>;

  std::variant<std::monostate, at::Tensor, bool, std::int64_t, double, std::string, List, Map>
      value;
};

namespace detail {

// Throws Error(kUsage) that says what is there instead.
[[noreturn]] void refuse_value(const PipelineValue& value, const char* wanted);
const PipelineValue::List& list_of(const PipelineValue& value, std::size_t count);

template <typename T>
struct ValueOf;

template <typename T>
const T& alternative(const PipelineValue& value, const char* wanted) {
  if (const T* const found = std::get_if<T>(&value.value)) return *found;
  refuse_value(value, wanted);
}

template <>
struct ValueOf<PipelineValue> {
  static PipelineValue to(const PipelineValue& value) { return value; }
  static PipelineValue from(const PipelineValue& value) { return value; }
};
template <>
struct ValueOf<at::Tensor> {
  static PipelineValue to(const at::Tensor& tensor) { return {tensor}; }
  static at::Tensor from(const PipelineValue& value) {
    return alternative<at::Tensor>(value, "a tensor");
  }
};
template <>
struct ValueOf<bool> {
  static PipelineValue to(bool flag) { return {flag}; }
  static bool from(const PipelineValue& value) { return alternative<bool>(value, "a flag"); }
};
template <std::integral T>
struct ValueOf<T> {
  static PipelineValue to(T number) { return {static_cast<std::int64_t>(number)}; }
  static T from(const PipelineValue& value) {
    return static_cast<T>(alternative<std::int64_t>(value, "a whole number"));
  }
};
template <std::floating_point T>
struct ValueOf<T> {
  static PipelineValue to(T number) { return {static_cast<double>(number)}; }
  static T from(const PipelineValue& value) {
    return static_cast<T>(alternative<double>(value, "a number"));
  }
};
template <>
struct ValueOf<std::string> {
  static PipelineValue to(const std::string& text) { return {text}; }
  static std::string from(const PipelineValue& value) {
    return alternative<std::string>(value, "a text");
  }
};
template <typename T>
struct ValueOf<std::vector<T>> {
  static PipelineValue to(const std::vector<T>& items) {
    PipelineValue::List list;
    for (const T& item : items) list.push_back(ValueOf<T>::to(item));
    return {std::move(list)};
  }
  static std::vector<T> from(const PipelineValue& value) {
    std::vector<T> items;
    for (const auto& item : alternative<PipelineValue::List>(value, "a list")) {
      items.push_back(ValueOf<T>::from(item));
    }
    return items;
  }
};
template <typename T>
struct ValueOf<std::map<std::string, T>> {
  static PipelineValue to(const std::map<std::string, T>& items) {
    PipelineValue::Map map;
    for (const auto& [name, item] : items) map.emplace(name, ValueOf<T>::to(item));
    return {std::move(map)};
  }
  static std::map<std::string, T> from(const PipelineValue& value) {
    std::map<std::string, T> items;
    for (const auto& [name, item] : alternative<PipelineValue::Map>(value, "a map")) {
      items.emplace(name, ValueOf<T>::from(item));
    }
    return items;
  }
};
template <typename... T>
struct ValueOf<std::tuple<T...>> {
  static PipelineValue to(const std::tuple<T...>& items) {
    return std::apply(
        [](const T&... item) {
          return PipelineValue{PipelineValue::List{ValueOf<T>::to(item)...}};
        },
        items);
  }
  static std::tuple<T...> from(const PipelineValue& value) {
    return from(list_of(value, sizeof...(T)), std::index_sequence_for<T...>());
  }

 private:
  template <std::size_t... I>
  static std::tuple<T...> from(const PipelineValue::List& list, std::index_sequence<I...>) {
    return {ValueOf<T>::from(list[I])...};
  }
};
template <typename A, typename B>
struct ValueOf<std::pair<A, B>> {
  static PipelineValue to(const std::pair<A, B>& items) {
    return {PipelineValue::List{ValueOf<A>::to(items.first), ValueOf<B>::to(items.second)}};
  }
  static std::pair<A, B> from(const PipelineValue& value) {
    const PipelineValue::List& list = list_of(value, 2);
    return {ValueOf<A>::from(list[0]), ValueOf<B>::from(list[1])};
  }
};

// The arguments and the result of a function.
template <typename Function>
struct Signature;
template <typename Class, typename R, typename... A>
struct Signature<R (Class::*)(A...)> {
  using Result = std::decay_t<R>;
  using Arguments = std::tuple<std::decay_t<A>...>;
};
template <typename Class, typename R, typename... A>
struct Signature<R (Class::*)(A...) const> : Signature<R (Class::*)(A...)> {};

// One argument is the value itself, several are a list of them.
template <typename Arguments>
Arguments arguments_from(const PipelineValue& value) {
  if constexpr (std::tuple_size_v<Arguments> == 1) {
    return {ValueOf<std::tuple_element_t<0, Arguments>>::from(value)};
  } else {
    return ValueOf<Arguments>::from(value);
  }
}
template <typename... Arguments>
PipelineValue value_from(const Arguments&... arguments) {
  if constexpr (sizeof...(Arguments) == 1) {
    return (ValueOf<Arguments>::to(arguments), ...);
  } else {
    return ValueOf<std::tuple<Arguments...>>::to(std::make_tuple(arguments...));
  }
}

}  // namespace detail
}  // namespace haul
