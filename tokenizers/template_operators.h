#pragma once

// Python's operators on values.

#include <string>
#include <string_view>

#include "tokenizers/template_value.h"

namespace haul::tokenizers::jinja {

// + - * / // % **
Value arithmetic(std::string_view symbol, const Value& a, const Value& b, Budget& budget);
Value negate(const Value& value, bool minus);
// == != < <= > >= in, not in
bool compare(std::string_view symbol, const Value& a, const Value& b, Budget& budget);
bool contains(const Value& container, const Value& item, Budget& budget);

// value.name: a method first, then an element of that name. Undefined when there is neither, and
// for what a template may not touch: private names, methods that change their object.
Value member(const Value& value, const std::string& name, Budget& budget);
// value[key]: the element first, then what has that name.
Value item(const Value& value, const Value& key, Budget& budget);
// value[start:stop:step]; an absent bound is null.
Value slice(const Value& value, const Value* start, const Value* stop, const Value* step,
            Budget& budget);

// Throws Error when the result leaves 64 bits.
std::int64_t checked_power(std::int64_t base, std::int64_t exponent);
double round_half_even(double value, std::int64_t digits);

}  // namespace haul::tokenizers::jinja
