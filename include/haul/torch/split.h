#pragma once

// Inputs shared out among processes: each gets one run of them, in order, the first ones one more
// where they do not come out even. Nothing here talks to another process, and the caller's value is
// never changed.

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "haul/error.h"

namespace haul {

// Which of `total` items one process has, and how many copies of the very last item follow them so
// that all processes have equally many.
struct Share {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  std::int64_t padding = 0;
  std::int64_t total = 0;

  bool operator==(const Share&) const = default;
};

// Throws Error(kUsage) for a process that is none of `processes`. Without items there is nothing to
// pad with, and nobody gets any.
Share share_of(std::int64_t total, std::int64_t process, std::int64_t processes,
               bool apply_padding = false);

// A part of the inputs and what it is of the whole.
template <typename T>
struct Part {
  T items;
  Share share;
};

// A user's own type can be split when it has size() and slice(begin, end), and padded when it also
// has append(const T&).
template <typename T>
concept Sliceable = requires(const T& value, std::int64_t at) {
  { value.size() } -> std::convertible_to<std::int64_t>;
  { value.slice(at, at) } -> std::convertible_to<T>;
};

namespace detail {

[[noreturn]] void refuse_lengths(const std::string& key, std::int64_t length,
                                 const std::string& first, std::int64_t expected);
[[noreturn]] void refuse_padding();
std::int64_t rows_of(const at::Tensor& tensor);
at::Tensor part_of(const at::Tensor& tensor, const Share& share);

inline std::int64_t length_of(const at::Tensor& tensor) {
  return rows_of(tensor);
}
template <typename T>
std::int64_t length_of(const std::vector<T>& items) {
  return static_cast<std::int64_t>(items.size());
}
template <Sliceable T>
std::int64_t length_of(const T& items) {
  return static_cast<std::int64_t>(items.size());
}
// All values of a map are as long as the first.
template <typename T>
std::int64_t length_of(const std::map<std::string, T>& items) {
  if (items.empty()) return 0;
  const auto& [first, value] = *items.begin();
  const std::int64_t length = length_of(value);
  for (const auto& [key, other] : items) {
    if (length_of(other) != length) refuse_lengths(key, length_of(other), first, length);
  }
  return length;
}

template <typename T>
std::vector<T> part_of(const std::vector<T>& items, const Share& share) {
  const auto begin = items.begin() + share.begin;
  std::vector<T> part(begin, begin + share.count);
  if (share.padding > 0)
    part.insert(part.end(), static_cast<std::size_t>(share.padding), items.back());
  return part;
}
template <Sliceable T>
T part_of(const T& items, const Share& share) {
  T part = items.slice(share.begin, share.begin + share.count);
  if (share.padding == 0) return part;
  if constexpr (requires { part.append(items); }) {
    const T last = items.slice(share.total - 1, share.total);
    for (std::int64_t i = 0; i < share.padding; ++i) part.append(last);
    return part;
  } else {
    refuse_padding();
  }
}
template <typename T>
std::map<std::string, T> part_of(const std::map<std::string, T>& items, const Share& share) {
  std::map<std::string, T> part;
  for (const auto& [key, value] : items) part.emplace(key, part_of(value, share));
  return part;
}

}  // namespace detail

// The part of one process: of a vector or a user's type its elements, of a tensor its rows, of a
// map each value split alike. Throws Error(kUsage) for values of a map that differ in length, and
// for a tensor without a dimension.
template <typename T>
Part<T> part_for(const T& items, std::int64_t process, std::int64_t processes,
                 bool apply_padding = false) {
  const Share share = share_of(detail::length_of(items), process, processes, apply_padding);
  return {detail::part_of(items, share), share};
}

}  // namespace haul
