#pragma once

// Arguments of filters, tests, methods and functions, bound to parameters as Python binds them.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/template_value.h"

namespace haul::tokenizers::jinja {

class Bound {
 public:
  // The first `required` parameters must be given. Throws Error for too few, too many and unknown
  // ones, naming `callee`.
  Bound(std::string_view callee, const Arguments& arguments,
        std::initializer_list<std::string_view> parameters, std::size_t required = 0);

  bool has(std::size_t parameter) const { return values_[parameter].has_value(); }
  const Value& operator[](std::size_t parameter) const { return *values_[parameter]; }
  // Given and not None.
  bool some(std::size_t parameter) const;
  bool flag(std::size_t parameter, bool otherwise = false) const;
  std::int64_t integer(std::size_t parameter, std::int64_t otherwise) const;
  // Throws when it is no string.
  const std::string& text(std::size_t parameter) const;

 private:
  std::string callee_;
  std::vector<std::optional<Value>> values_;
};

}  // namespace haul::tokenizers::jinja
