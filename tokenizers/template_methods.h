#pragma once

// The methods of Python's str, dict, list and tuple that a template may call.

#include <string>

#include "tokenizers/template_value.h"

namespace haul::tokenizers::jinja {

using Function = Value (*)(Budget& budget, const Value& self, const Arguments& arguments);

// A method bound to its object; false when there is none of that name.
bool find_method(const Value& self, const std::string& name, Value& method);
// Python's own names, and methods that would change their object.
bool is_forbidden(const Value& self, const std::string& name);

}  // namespace haul::tokenizers::jinja
