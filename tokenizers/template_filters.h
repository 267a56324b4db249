#pragma once

// What `|` applies: tojson, trim, default, …

#include <string_view>
#include <vector>

#include "tokenizers/template_value.h"

namespace haul::tokenizers::jinja {

using Filter = Value (*)(Budget& budget, const Value& value, const Arguments& arguments);

struct NamedFilter {
  std::string_view name;
  Filter filter;
};

// Null when there is none of that name.
Filter find_filter(std::string_view name);

// Filters of one value, and those of sequences.
const std::vector<NamedFilter>& value_filters();
const std::vector<NamedFilter>& sequence_filters();

}  // namespace haul::tokenizers::jinja
