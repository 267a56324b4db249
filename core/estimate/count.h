#pragma once

// Whole numbers that refuse to overflow, so that formulas over a config's sizes and a user's
// request can be written as they are in the documents. Throws Error(kUnsupported).

#include <concepts>
#include <cstdint>

#include "haul/error.h"

namespace haul::core {

class Count {
 public:
  // REQUIRES: value is not negative.
  template <std::integral Integer>
  Count(Integer value) : value_(static_cast<std::uint64_t>(value)) {}

  std::uint64_t value() const { return value_; }

  friend Count operator+(Count a, Count b) {
    Count sum = 0;
    if (__builtin_add_overflow(a.value_, b.value_, &sum.value_)) refuse();
    return sum;
  }
  friend Count operator*(Count a, Count b) {
    Count product = 0;
    if (__builtin_mul_overflow(a.value_, b.value_, &product.value_)) refuse();
    return product;
  }
  // What is left of a after b; nothing when b is larger.
  friend Count operator-(Count a, Count b) { return a < b ? 0 : a.value_ - b.value_; }
  Count& operator+=(Count other) { return *this = *this + other; }
  friend auto operator<=>(Count a, Count b) = default;

 private:
  [[noreturn]] static void refuse() {
    throw Error(ErrorKind::kUnsupported, "the estimate does not fit in 64 bits",
                "ask for a smaller context, sequence or batch");
  }

  std::uint64_t value_;
};

}  // namespace haul::core
