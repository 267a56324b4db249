#pragma once

// What `is` asks: defined, none, string, …

#include <string_view>

#include "tokenizers/template_value.h"

namespace haul::tokenizers::jinja {

using Test = bool (*)(Budget& budget, const Value& value, const Arguments& arguments);

// Null when there is none of that name.
Test find_test(std::string_view name);

}  // namespace haul::tokenizers::jinja
