#pragma once

// Python's two ways to format: "{}".format(…) and "%s" % …, and a clock's strftime.

#include <ctime>
#include <string>
#include <string_view>

#include "tokenizers/template_value.h"

namespace haul::tokenizers::jinja {

std::string format_braces(std::string_view format, const Arguments& arguments, Budget& budget);
// `values` is one value, a tuple of them or a dict.
std::string format_percent(std::string_view format, const Value& values, Budget& budget);
std::string format_time(const std::string& format, std::time_t time);

}  // namespace haul::tokenizers::jinja
