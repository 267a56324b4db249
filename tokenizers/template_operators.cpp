#include "tokenizers/template_operators.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "tokenizers/template_format.h"
#include "tokenizers/template_methods.h"
#include "tokenizers/template_text.h"
#include "tokenizers/utf8.h"

namespace haul::tokenizers::jinja {
namespace {

[[noreturn]] void overflow() {
  fail("a number leaves 64 bits");
}

[[noreturn]] void unsupported(std::string_view symbol, const Value& a, const Value& b) {
  fail(
      fmt::format("unsupported operands of {}: '{}' and '{}'", symbol, type_name(a), type_name(b)));
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  if (b == 0) fail("division by zero");
  if (b == -1) {
    std::int64_t result = 0;
    if (__builtin_sub_overflow(std::int64_t{0}, a, &result)) overflow();
    return result;
  }
  const std::int64_t quotient = a / b;
  return quotient - (a % b != 0 && (a % b < 0) != (b < 0));
}

Value integers(std::string_view symbol, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool wrong = false;
  if (symbol == "+") {
    wrong = __builtin_add_overflow(a, b, &result);
  } else if (symbol == "-") {
    wrong = __builtin_sub_overflow(a, b, &result);
  } else if (symbol == "*") {
    wrong = __builtin_mul_overflow(a, b, &result);
  } else if (symbol == "/") {
    if (b == 0) fail("division by zero");
    return Value::real(static_cast<double>(a) / static_cast<double>(b));
  } else if (symbol == "//") {
    result = floor_divide(a, b);
  } else if (symbol == "%") {
    if (b == 0) fail("modulo by zero");
    result = b == -1 ? 0 : a - floor_divide(a, b) * b;
  } else if (b < 0) {
    if (a == 0) fail("zero to a negative power");
    return Value::real(std::pow(static_cast<double>(a), static_cast<double>(b)));
  } else {
    result = checked_power(a, b);
  }
  if (wrong) overflow();
  return Value::integer(result);
}

Value reals(std::string_view symbol, double a, double b) {
  if (symbol == "+") return Value::real(a + b);
  if (symbol == "-") return Value::real(a - b);
  if (symbol == "*") return Value::real(a * b);
  if (symbol == "**") {
    if (a == 0 && b < 0) fail("zero to a negative power");
    if (a < 0 && std::isfinite(b) && b != std::floor(b)) fail("a root of a negative number");
    const double result = std::pow(a, b);
    if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) fail("a number is too large");
    return Value::real(result);
  }
  if (b == 0) fail("division by zero");
  if (symbol == "/") return Value::real(a / b);
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    rest += b;
    quotient -= 1;
  }
  if (symbol == "%") return Value::real(rest == 0 ? std::copysign(0.0, b) : rest);
  if (quotient == 0) return Value::real(std::copysign(0.0, a / b));
  const double floor = std::floor(quotient);
  return Value::real(quotient - floor > 0.5 ? floor + 1 : floor);
}

Value repeat(const Value& value, std::int64_t times, Budget& budget) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(times, 0));
  const auto charge = [&](std::size_t each) {
    std::size_t bytes = 0;
    if (__builtin_mul_overflow(each, count, &bytes)) bytes = SIZE_MAX;
    budget.allocate(bytes);
  };
  if (value.is_string()) {
    charge(value.text().size());
    std::string out;
    if (value.text().empty()) return value;
    for (std::size_t i = 0; i < count; ++i) out += value.text();
    return Value::string(std::move(out), value.safe());
  }
  charge(value.items().size() * sizeof(Value));
  List items;
  if (!value.items().empty()) {
    for (std::size_t i = 0; i < count; ++i) {
      items.insert(items.end(), value.items().begin(), value.items().end());
    }
  }
  return value.is(Kind::kList) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

Value add_texts(const Value& a, const Value& b, Budget& budget) {
  budget.allocate(a.text().size() + b.text().size());
  if (a.safe() == b.safe()) return Value::string(a.text() + b.text(), a.safe());
  std::string left = a.safe() ? a.text() : escape_html(a.text());
  std::string right = b.safe() ? b.text() : escape_html(b.text());
  budget.allocate(left.size() + right.size());
  return Value::string(std::move(left) + right, true);
}

std::string described(const Value& value) {
  return value.is(Kind::kNone) ? "None" : type_name(value) + " object";
}

bool is_repeatable(const Value& value) {
  return value.is_string() || value.is_sequence();
}

// Where the key lies in a sequence; nothing when outside.
bool position(const Value& key, std::size_t size, std::size_t& at) {
  const std::int64_t index = key.as_integer();
  const auto count = static_cast<std::int64_t>(size);
  if (index >= count || index < -count) return false;
  at = static_cast<std::size_t>(index < 0 ? index + count : index);
  return true;
}

// The element, null when there is none.
Value element(const Value& value, const Value& key, Budget& budget, bool& found) {
  found = true;
  std::size_t at = 0;
  if (value.is(Kind::kDict)) {
    if (hashable(key)) {
      if (const Value* entry = find(value.entries(), key, budget)) return *entry;
    }
  } else if (value.is_sequence() || value.is(Kind::kRange)) {
    if (key.is_integral() && position(key, value.items().size(), at)) return value.items()[at];
  } else if (value.is_string() && key.is_integral()) {
    const std::string& text = value.text();
    budget.step(text.size() / 64);
    const bool ascii = ascii_prefix(text) == text.size();
    if (position(key, ascii ? text.size() : count_points(text), at)) {
      return Value::string(
          ascii ? std::string(1, text[at]) : std::string(characters(text, at, at + 1)),
          value.safe());
    }
  }
  found = false;
  return {};
}

std::int64_t bound(const Value* value, std::int64_t size, std::int64_t step, bool is_start) {
  const std::int64_t low = step > 0 ? 0 : -1;
  const std::int64_t high = step > 0 ? size : size - 1;
  if (value == nullptr || value->is(Kind::kNone)) return is_start == (step > 0) ? low : high;
  if (!value->is_integral()) fail("slice indices must be integers or None");
  std::int64_t at = value->as_integer();
  if (at < 0) at = at < -size ? low : at + size;
  return std::clamp(at, low, high);
}

}  // namespace

std::int64_t checked_power(std::int64_t base, std::int64_t exponent) {
  if (base == 1 || (base == -1 && exponent % 2 == 0)) return 1;
  if (base == -1) return -1;
  if (base == 0) return exponent == 0;
  if (exponent > 63) overflow();
  std::int64_t result = 1;
  for (std::int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(result, base, &result)) overflow();
  }
  return result;
}

// The decimal digits that the number is closest to; a tie of the exact value goes to even.
double round_half_even(double value, std::int64_t digits) {
  if (!std::isfinite(value) || digits > 330) return value;
  if (digits < -330) return std::copysign(0.0, value);
  if (digits < 0) {
    const double scale = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(value / scale) * scale;
  }
  const std::string text = fmt::format("{:.{}f}", value, digits);
  return std::strtod(text.c_str(), nullptr);
}

Value arithmetic(std::string_view symbol, const Value& a, const Value& b, Budget& budget) {
  require_defined(a);
  if (symbol == "%" && a.is_string()) {
    return Value::string(format_percent(a.text(), b, budget), a.safe());
  }
  require_defined(b);
  if (a.is_integral() && b.is_integral()) return integers(symbol, a.as_integer(), b.as_integer());
  if (a.is_number() && b.is_number()) return reals(symbol, a.as_real(), b.as_real());
  if (symbol == "+" && a.is_string() && b.is_string()) return add_texts(a, b, budget);
  if (symbol == "+" && a.is_sequence() && a.kind() == b.kind()) {
    budget.allocate((a.items().size() + b.items().size()) * sizeof(Value));
    List items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return a.is(Kind::kList) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
  }
  if (symbol == "*" && is_repeatable(a) && b.is_integral())
    return repeat(a, b.as_integer(), budget);
  if (symbol == "*" && is_repeatable(b) && a.is_integral())
    return repeat(b, a.as_integer(), budget);
  unsupported(symbol, a, b);
}

Value negate(const Value& value, bool minus) {
  require_defined(value);
  if (value.is(Kind::kFloat)) return Value::real(minus ? -value.as_real() : value.as_real());
  if (!value.is_integral()) fail(fmt::format("no sign before a '{}'", type_name(value)));
  return minus ? integers("-", 0, value.as_integer()) : Value::integer(value.as_integer());
}

bool compare(std::string_view symbol, const Value& a, const Value& b, Budget& budget) {
  if (symbol == "==") return equal(a, b, budget);
  if (symbol == "!=") return !equal(a, b, budget);
  if (symbol == "in") return contains(b, a, budget);
  if (symbol == "not in") return !contains(b, a, budget);
  if (symbol == "<") return less(a, b, budget);
  if (symbol == ">") return less(b, a, budget);
  const bool nan =
      a.is_number() && b.is_number() && (std::isnan(a.as_real()) || std::isnan(b.as_real()));
  if (nan) return false;
  return symbol == "<=" ? !less(b, a, budget) : !less(a, b, budget);
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  if (container.is_string()) {
    if (!item.is_string()) {
      fail(fmt::format("'in' a string needs a string, not '{}'", type_name(item)));
    }
    budget.step(container.text().size() / 64);
    return container.text().find(item.text()) != std::string::npos;
  }
  if (container.is(Kind::kDict)) {
    if (!hashable(item)) fail(fmt::format("unhashable type: '{}'", type_name(item)));
    return find(container.entries(), item, budget) != nullptr;
  }
  const List items = elements(container, budget);
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& other) { return equal(other, item, budget); });
}

Value member(const Value& value, const std::string& name, Budget& budget) {
  require_defined(value);
  if (value.is(Kind::kObject)) {
    Value found;
    if (!name.starts_with("_") && value.as_object().attribute(name, found)) return found;
  }
  if (is_forbidden(value, name)) {
    return Value::undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe", name, type_name(value)));
  }
  Value method;
  if (find_method(value, name, method)) return method;
  bool found = false;
  Value result = element(value, Value::string(name), budget, found);
  if (found) return result;
  return Value::undefined(fmt::format("'{}' has no attribute '{}'", described(value), name));
}

Value item(const Value& value, const Value& key, Budget& budget) {
  require_defined(value);
  bool found = false;
  Value result = element(value, key, budget, found);
  if (found) return result;
  if (key.is_string()) return member(value, key.text(), budget);
  return Value::undefined(
      fmt::format("{} has no element {}", described(value), repr(key, budget).substr(0, 80)));
}

Value slice(const Value& value, const Value* start, const Value* stop, const Value* step,
            Budget& budget) {
  require_defined(value);
  if (!is_repeatable(value) && !value.is(Kind::kRange)) {
    fail(fmt::format("'{}' object cannot be sliced", type_name(value)));
  }
  const bool whole_step = step == nullptr || step->is(Kind::kNone);
  if (!whole_step && !step->is_integral()) fail("slice indices must be integers or None");
  const std::int64_t stride = whole_step ? 1 : std::max(step->as_integer(), -INT64_MAX);
  if (stride == 0) fail("slice step cannot be zero");
  const auto size = static_cast<std::int64_t>(length(value));
  const std::int64_t first = bound(start, size, stride, true);
  const std::int64_t last = bound(stop, size, stride, false);
  budget.step(static_cast<std::size_t>(size) / 64);
  if (value.is_string() && stride == 1) {
    const std::string_view part = characters(value.text(), static_cast<std::size_t>(first),
                                             static_cast<std::size_t>(std::max(first, last)));
    budget.allocate(part.size());
    return Value::string(std::string(part), value.safe());
  }
  const List items = elements(value, budget);
  List picked;
  for (std::int64_t i = first; stride > 0 ? i < last : i > last;) {
    picked.push_back(items[static_cast<std::size_t>(i)]);
    if (__builtin_add_overflow(i, stride, &i)) break;
  }
  budget.allocate(picked.size() * sizeof(Value));
  if (value.is_string()) {
    std::string out;
    for (const Value& character : picked) out += character.text();
    return Value::string(std::move(out), value.safe());
  }
  if (value.is(Kind::kRange)) return Value::range("range", std::move(picked));
  return value.is(Kind::kList) ? Value::list(std::move(picked)) : Value::tuple(std::move(picked));
}

}  // namespace haul::tokenizers::jinja
