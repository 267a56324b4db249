#include "tokenizers/template_arguments.h"

#include <algorithm>

#include <fmt/format.h>

namespace haul::tokenizers::jinja {

Bound::Bound(std::string_view callee, const Arguments& arguments,
             std::initializer_list<std::string_view> parameters, std::size_t required)
    : callee_(callee), values_(parameters.size()) {
  if (arguments.positional.size() > parameters.size()) {
    fail(fmt::format("{}() takes at most {} arguments, {} were given", callee, parameters.size(),
                     arguments.positional.size()));
  }
  std::copy(arguments.positional.begin(), arguments.positional.end(), values_.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto* found = std::find(parameters.begin(), parameters.end(), name);
    if (found == parameters.end()) fail(fmt::format("{}() has no argument '{}'", callee, name));
    auto& slot = values_[static_cast<std::size_t>(found - parameters.begin())];
    if (slot) fail(fmt::format("{}() got argument '{}' twice", callee, name));
    slot = value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (!values_[i]) {
      fail(fmt::format("{}() needs the argument '{}'", callee, *(parameters.begin() + i)));
    }
  }
}

bool Bound::some(std::size_t parameter) const {
  return has(parameter) && !(*this)[parameter].is(Kind::kNone);
}

bool Bound::flag(std::size_t parameter, bool otherwise) const {
  return has(parameter) ? truth((*this)[parameter]) : otherwise;
}

std::int64_t Bound::integer(std::size_t parameter, std::int64_t otherwise) const {
  if (!has(parameter)) return otherwise;
  const Value& value = (*this)[parameter];
  require_defined(value);
  if (!value.is_integral()) {
    fail(fmt::format("{}() needs an integer, not '{}'", callee_, type_name(value)));
  }
  return value.as_integer();
}

const std::string& Bound::text(std::size_t parameter) const {
  const Value& value = (*this)[parameter];
  require_defined(value);
  if (!value.is_string()) {
    fail(fmt::format("{}() needs a string, not '{}'", callee_, type_name(value)));
  }
  return value.text();
}

}  // namespace haul::tokenizers::jinja
