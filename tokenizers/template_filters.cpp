#include "tokenizers/template_filters.h"

#include <charconv>
#include <cmath>
#include <unordered_map>

#include <fmt/format.h>

#include "tokenizers/template_arguments.h"
#include "tokenizers/template_format.h"
#include "tokenizers/template_json.h"
#include "tokenizers/template_methods.h"
#include "tokenizers/template_operators.h"
#include "tokenizers/template_text.h"

namespace haul::tokenizers::jinja {
namespace {

// The value as text; a string stays what it is.
Value soft_text(const Value& value, Budget& budget) {
  return value.is_string() ? value : Value::string(str(value, budget));
}

template <std::string (*convert)(std::string_view)>
Value converted(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound none("the filter", arguments, {});
  const Value text = soft_text(value, budget);
  budget.step(text.text().size() / 16);
  budget.allocate(text.text().size());
  return Value::string(convert(text.text()), text.safe());
}

Value tojson(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = bound.flag(0);
  if (bound.some(1)) {
    style.indent =
        bound[1].is_string()
            ? bound[1].text()
            : std::string(
                  static_cast<std::size_t>(std::clamp<std::int64_t>(bound.integer(1, 0), 0, 1000)),
                  ' ');
    style.item = ',';
  }
  if (bound.some(2)) {
    const List separators = elements(bound[2], budget);
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
      fail("tojson() needs two separators");
    }
    style.item = separators[0].text();
    style.key = separators[1].text();
  }
  style.sorted = bound.flag(3);
  return Value::string(to_json(value, style, budget));
}

Value otherwise(Budget&, const Value& value, const Arguments& arguments) {
  const Bound bound("default", arguments, {"default_value", "boolean"});
  if (!value.is_undefined() && !(bound.flag(1) && !truth(value))) return value;
  return bound.has(0) ? bound[0] : Value::string("");
}

Value trim(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound bound("trim", arguments, {"chars"});
  const Value text = soft_text(value, budget);
  std::optional<std::string_view> set;
  if (bound.some(0)) set = bound.text(0);
  budget.allocate(text.text().size());
  return Value::string(std::string(strip(text.text(), set, Side::kBoth)), text.safe());
}

Value measured(Budget&, const Value& value, const Arguments& arguments) {
  const Bound none("length", arguments, {});
  return Value::integer(static_cast<std::int64_t>(length(value)));
}

Value as_string(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound none("string", arguments, {});
  return soft_text(value, budget);
}

Value replaced(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  const std::int64_t limit = bound.some(2) ? bound.integer(2, -1) : -1;
  return Value::string(
      replace(str(value, budget), str(bound[0], budget), str(bound[1], budget), limit, budget));
}

Value safe(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound none("safe", arguments, {});
  return Value::string(str(value, budget), true);
}

Value escaped(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound none("escape", arguments, {});
  if (value.is_string() && value.safe()) return value;
  std::string text = escape_html(str(value, budget));
  budget.allocate(text.size());
  return Value::string(std::move(text), true);
}

Value force_escaped(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound none("forceescape", arguments, {});
  std::string text = escape_html(str(value, budget));
  budget.allocate(text.size());
  return Value::string(std::move(text), true);
}

std::string without_underscores(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool between = text[i] == '_' && i > 0 && text[i - 1] != '_' && i + 1 < text.size();
    if (!between) out += text[i];
  }
  return out;
}

bool parse_integer(std::string_view text, int base, std::int64_t& result) {
  std::string digits = without_underscores(strip(text, std::nullopt, Side::kBoth));
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.erase(0, 1);
  const char mark =
      digits.size() > 2 && digits[0] == '0' ? static_cast<char>(digits[1] | 0x20) : '\0';
  const int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
  if (marked != 0 && (base == marked || base == 0)) {
    digits.erase(0, 2);
    base = marked;
  }
  if (digits.empty() || digits[0] == '-' || base == 1 || base > 36 || base < 0) return false;
  if (negative) digits = '-' + digits;
  const auto parsed =
      std::from_chars(digits.data(), digits.data() + digits.size(), result, base == 0 ? 10 : base);
  if (parsed.ec == std::errc::result_out_of_range) fail("a number leaves 64 bits");
  return parsed.ec == std::errc{} && parsed.ptr == digits.data() + digits.size();
}

bool parse_real(std::string_view text, double& result) {
  std::string digits = lower(without_underscores(strip(text, std::nullopt, Side::kBoth)));
  if (digits.starts_with('+')) digits.erase(0, 1);
  if (digits.find_first_of("x(") != digits.npos || digits.starts_with("+")) return false;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), result);
  if (parsed.ec == std::errc::result_out_of_range) {
    result = digits.find("e-") != digits.npos ? 0.0 : HUGE_VAL;
    return true;
  }
  return parsed.ec == std::errc{} && parsed.ptr == digits.data() + digits.size();
}

bool truncated(double real, std::int64_t& result) {
  if (!std::isfinite(real)) return false;
  if (std::fabs(real) >= 9.2e18) fail("a number leaves 64 bits");
  result = static_cast<std::int64_t>(real);
  return true;
}

Value as_integer(Budget&, const Value& value, const Arguments& arguments) {
  const Bound bound("int", arguments, {"default", "base"});
  require_defined(value);
  std::int64_t integer = 0;
  double real = 0;
  const auto base = static_cast<int>(std::clamp<std::int64_t>(bound.integer(1, 10), -1, 100));
  if (value.is_integral()) return Value::integer(value.as_integer());
  if (value.is(Kind::kFloat) && std::isinf(value.as_real())) fail("infinity is no integer");
  if (value.is(Kind::kFloat) && truncated(value.as_real(), integer)) return Value::integer(integer);
  if (value.is_string() && (parse_integer(value.text(), base, integer) ||
                            (parse_real(value.text(), real) && truncated(real, integer)))) {
    return Value::integer(integer);
  }
  return bound.has(0) ? bound[0] : Value::integer(0);
}

Value as_real(Budget&, const Value& value, const Arguments& arguments) {
  const Bound bound("float", arguments, {"default"});
  require_defined(value);
  double real = 0;
  if (value.is_number()) return Value::real(value.as_real());
  if (value.is_string() && parse_real(value.text(), real)) return Value::real(real);
  return bound.has(0) ? bound[0] : Value::real(0);
}

Value rounded(Budget&, const Value& value, const Arguments& arguments) {
  const Bound bound("round", arguments, {"precision", "method"});
  require_defined(value);
  if (!value.is_number()) fail(fmt::format("round needs a number, not '{}'", type_name(value)));
  const std::int64_t digits = bound.integer(0, 0);
  const std::string method = bound.has(1) ? bound.text(1) : "common";
  if (method == "common") {
    if (!value.is_integral()) return Value::real(round_half_even(value.as_real(), digits));
    if (digits >= 0) return Value::integer(value.as_integer());
    return Value::integer(static_cast<std::int64_t>(
        round_half_even(value.as_real(), std::max<std::int64_t>(digits, -18))));
  }
  if (method != "ceil" && method != "floor") fail("round: the method is common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = value.as_real() * scale;
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value absolute(Budget&, const Value& value, const Arguments& arguments) {
  const Bound none("abs", arguments, {});
  require_defined(value);
  if (!value.is_number()) fail(fmt::format("abs needs a number, not '{}'", type_name(value)));
  if (value.is(Kind::kFloat)) return Value::real(std::fabs(value.as_real()));
  return value.as_integer() < 0 ? negate(value, true) : Value::integer(value.as_integer());
}

Value indented(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound bound("indent", arguments, {"width", "first", "blank"});
  require_defined(value);
  if (!value.is_string()) fail(fmt::format("indent needs a string, not '{}'", type_name(value)));
  const bool by_text = bound.has(0) && bound[0].is_string();
  const std::int64_t width = by_text ? 0 : bound.integer(0, 4);
  if (width > 10'000) fail("indent: more than 10000 spaces");
  const std::string indent =
      by_text ? bound[0].text()
              : std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
  const std::string text = value.text() + "\n";
  const std::vector<std::string_view> lines = split_lines(text, false);
  budget.step(lines.size());
  budget.allocate(text.size() + lines.size() * indent.size());
  std::string out = bound.flag(1) ? indent : "";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += "\n";
    if (i > 0 && (bound.flag(2) || !lines[i].empty())) out += indent;
    out += lines[i];
  }
  return Value::string(std::move(out), value.safe());
}

Value words(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound none("wordcount", arguments, {});
  return Value::integer(static_cast<std::int64_t>(count_words(soft_text(value, budget).text())));
}

Value formatted(Budget& budget, const Value& value, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    fail("format takes values by position or by name, not both");
  }
  Value values = Value::tuple(arguments.positional);
  if (!arguments.named.empty()) {
    Pairs entries;
    for (const auto& [name, item] : arguments.named)
      entries.emplace_back(Value::string(name), item);
    values = Value::dict(std::move(entries));
  }
  return Value::string(format_percent(soft_text(value, budget).text(), values, budget));
}

Value centered(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound bound("center", arguments, {"width"});
  Value method;
  find_method(soft_text(value, budget), "center", method);
  Arguments width;
  width.positional.push_back(Value::integer(bound.integer(0, 80)));
  return method.as_object().call(budget, width);
}

Value shortened(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound bound("truncate", arguments, {"length", "killwords", "end", "leeway"});
  require_defined(value);
  if (!value.is_string()) fail(fmt::format("truncate needs a string, not '{}'", type_name(value)));
  const std::string end = bound.has(2) ? bound.text(2) : "...";
  const std::int64_t most = bound.integer(0, 255);
  const std::int64_t leeway = bound.some(3) ? bound.integer(3, 5) : 5;
  const auto tail = static_cast<std::int64_t>(length(Value::string(end)));
  const auto size = static_cast<std::int64_t>(length(value));
  if (most < tail || leeway < 0) fail("truncate: the length is shorter than its ending");
  if (size - leeway <= most) return value;
  std::string_view kept = characters(value.text(), 0, static_cast<std::size_t>(most - tail));
  if (!bound.flag(1)) kept = kept.substr(0, kept.rfind(' '));
  budget.allocate(kept.size() + end.size());
  std::string out(kept);
  out += end;
  return Value::string(std::move(out));
}

Value attribute(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound bound("attr", arguments, {"name"}, 1);
  require_defined(value);
  Value found;
  if (value.is(Kind::kObject) || find_method(value, bound.text(0), found)) {
    return member(value, bound.text(0), budget);
  }
  return Value::undefined(fmt::format("no attribute '{}'", bound.text(0)));
}

}  // namespace

const std::vector<NamedFilter>& value_filters() {
  static const std::vector<NamedFilter> filters = {
      {"abs", absolute},
      {"attr", attribute},
      {"capitalize", converted<capitalize>},
      {"center", centered},
      {"count", measured},
      {"d", otherwise},
      {"default", otherwise},
      {"e", escaped},
      {"escape", escaped},
      {"float", as_real},
      {"forceescape", force_escaped},
      {"format", formatted},
      {"indent", indented},
      {"int", as_integer},
      {"length", measured},
      {"lower", converted<lower>},
      {"replace", replaced},
      {"round", rounded},
      {"safe", safe},
      {"string", as_string},
      {"title", converted<title_words>},
      {"tojson", tojson},
      {"trim", trim},
      {"truncate", shortened},
      {"upper", converted<upper>},
      {"wordcount", words},
  };
  return filters;
}

Filter find_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, Filter> table = [] {
    std::unordered_map<std::string_view, Filter> all;
    for (const auto* filters : {&value_filters(), &sequence_filters()}) {
      for (const NamedFilter& filter : *filters) all.emplace(filter.name, filter.filter);
    }
    return all;
  }();
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace haul::tokenizers::jinja
