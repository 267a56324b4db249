#include "tokenizers/template_format.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

#include <fmt/format.h>

#include "tokenizers/template_operators.h"
#include "tokenizers/template_text.h"
#include "tokenizers/utf8.h"

namespace haul::tokenizers::jinja {
namespace {

constexpr std::size_t kWidest = 10'000;

struct Spec {
  std::string fill = " ";
  char align = '\0';
  char sign = '-';
  bool alternate = false;
  char grouping = '\0';
  std::size_t width = 0;
  std::optional<int> precision;
  char type = '\0';
};

std::size_t read_number(std::string_view text, std::size_t& at) {
  std::size_t number = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    number = number * 10 + static_cast<std::size_t>(text[at++] - '0');
    if (number > kWidest) fail(fmt::format("a format is wider than {} characters", kWidest));
  }
  return number;
}

bool is_align(char c) {
  return c == '<' || c == '>' || c == '^' || c == '=';
}

Spec read_spec(std::string_view text) {
  Spec spec;
  std::size_t at = 0;
  if (!text.empty()) {
    const std::size_t first = utf8_size(text[0]);
    if (first < text.size() && is_align(text[first])) {
      spec.fill = text.substr(0, first);
      spec.align = text[first];
      at = first + 1;
    } else if (is_align(text[0])) {
      spec.align = text[at++];
    }
  }
  const auto take = [&](std::string_view any) {
    return at < text.size() && any.find(text[at]) != any.npos ? text[at++] : '\0';
  };
  if (const char sign = take("+- ")) spec.sign = sign;
  spec.alternate = take("#") != '\0';
  if (take("0") != '\0' && spec.align == '\0') {
    spec.fill = "0";
    spec.align = '=';
  }
  spec.width = read_number(text, at);
  spec.grouping = take(",_");
  if (take(".") != '\0') {
    const std::size_t begin = at;
    spec.precision = static_cast<int>(read_number(text, at));
    if (at == begin) fail("a format has no precision after its dot");
  }
  spec.type = take("bcdeEfFgGnosxX%");
  if (at != text.size()) fail(fmt::format("'{}' is no format", text.substr(0, 40)));
  return spec;
}

std::string padded(std::string_view sign, std::string_view body, const Spec& spec, char usual,
                   Budget& budget) {
  const std::size_t size = sign.size() + count_points(body);
  const std::size_t missing = spec.width > size ? spec.width - size : 0;
  const char align = spec.align == '\0' ? usual : spec.align;
  const std::size_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  budget.allocate(missing * spec.fill.size() + body.size());
  std::string out;
  if (align == '=') out += sign;
  for (std::size_t i = 0; i < before; ++i) out += spec.fill;
  if (align != '=') out += sign;
  out += body;
  for (std::size_t i = before; i < missing; ++i) out += spec.fill;
  return out;
}

std::string grouped(std::string digits, char separator) {
  if (separator == '\0') return digits;
  std::size_t end = digits.find_first_not_of("0123456789");
  if (end == digits.npos) end = digits.size();
  while (end > 3) {
    end -= 3;
    digits.insert(end, 1, separator);
  }
  return digits;
}

std::string format_integer(std::int64_t value, const Spec& spec, Budget& budget) {
  const auto magnitude =
      value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  std::string sign = value < 0 ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  std::string digits;
  switch (spec.type) {
    case 'x':
      digits = fmt::format("{:x}", magnitude);
      break;
    case 'X':
      digits = fmt::format("{:X}", magnitude);
      break;
    case 'o':
      digits = fmt::format("{:o}", magnitude);
      break;
    case 'b':
      digits = fmt::format("{:b}", magnitude);
      break;
    default:
      digits = std::to_string(magnitude);
  }
  if (spec.alternate && spec.type != '\0' && spec.type != 'd') sign += std::string("0") + spec.type;
  return padded(sign, grouped(std::move(digits), spec.grouping), spec, '>', budget);
}

std::string format_real(double value, const Spec& spec, Budget& budget) {
  const bool negative = std::signbit(value) && !std::isnan(value);
  const double magnitude = std::fabs(value);
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  const int precision = spec.precision.value_or(6);
  std::string digits;
  switch (spec.type) {
    case '%':
      digits = fmt::format("{:.{}f}%", magnitude * 100, precision);
      break;
    case 'f':
    case 'F':
      digits = fmt::format("{:.{}f}", magnitude, precision);
      break;
    case 'e':
      digits = fmt::format("{:.{}e}", magnitude, precision);
      break;
    case 'E':
      digits = fmt::format("{:.{}E}", magnitude, precision);
      break;
    case 'g':
    case 'n':
      digits = fmt::format("{:.{}g}", magnitude, precision);
      break;
    case 'G':
      digits = fmt::format("{:.{}G}", magnitude, precision);
      break;
    default:
      digits =
          spec.precision ? fmt::format("{:.{}g}", magnitude, precision) : float_repr(magnitude);
      if (spec.precision && digits.find_first_of(".en") == digits.npos) digits += ".0";
  }
  budget.allocate(digits.size());
  return padded(sign, grouped(std::move(digits), spec.grouping), spec, '>', budget);
}

std::string format_text(std::string_view text, const Spec& spec, Budget& budget) {
  if (spec.precision) {
    const std::size_t size = count_points(text);
    text = characters(text, 0, std::min(size, static_cast<std::size_t>(*spec.precision)));
  }
  if (spec.align == '=') fail("'=' does not align text");
  return padded("", text, spec, '<', budget);
}

std::string format_value(const Value& value, std::string_view text, Budget& budget) {
  if (text.empty()) return str(value, budget);
  const Spec spec = read_spec(text);
  const bool real = std::string_view("eEfFgGn%").find(spec.type) != std::string_view::npos;
  if (value.is_string() && (spec.type == '\0' || spec.type == 's')) {
    return format_text(value.text(), spec, budget);
  }
  if (value.is_integral() && spec.type != 's' && !(spec.type != '\0' && real)) {
    return format_integer(value.as_integer(), spec, budget);
  }
  if (value.is_number() && (spec.type == '\0' || real)) {
    return format_real(value.as_real(), spec, budget);
  }
  fail(fmt::format("the format '{}' does not suit a '{}'", text.substr(0, 40), type_name(value)));
}

class BraceFormatter {
 public:
  BraceFormatter(const Arguments& arguments, Budget& budget)
      : arguments_(arguments), budget_(budget) {}

  std::string run(std::string_view format, int nesting) {
    if (nesting > 2) fail("a format is nested too deeply");
    std::string out;
    for (std::size_t at = 0; at < format.size();) {
      const char c = format[at];
      if (c != '{' && c != '}') {
        out += c;
        ++at;
        continue;
      }
      if (at + 1 < format.size() && format[at + 1] == c) {
        out += c;
        at += 2;
        continue;
      }
      if (c == '}') fail("a single '}' in a format");
      const std::size_t end = closing(format, at);
      out += field(format.substr(at + 1, end - at - 1), nesting);
      at = end + 1;
    }
    budget_.allocate(out.size());
    return out;
  }

 private:
  static std::size_t closing(std::string_view format, std::size_t at) {
    int open = 0;
    for (; at < format.size(); ++at) {
      if (format[at] == '{') ++open;
      if (format[at] == '}' && --open == 0) return at;
    }
    fail("a '{' in a format has no end");
  }

  std::string field(std::string_view text, int nesting) {
    const std::size_t end = std::min(text.find_first_of("!:"), text.size());
    const Value value = look_up(text.substr(0, end));
    std::string_view rest = text.substr(end);
    char conversion = '\0';
    if (rest.size() >= 2 && rest[0] == '!') {
      conversion = rest[1];
      rest.remove_prefix(2);
      if (conversion != 'r' && conversion != 's') fail("a conversion that is neither !r nor !s");
    }
    if (!rest.empty() && rest[0] != ':') fail("expected ':' after a conversion");
    const std::string spec = rest.empty() ? "" : run(rest.substr(1), nesting + 1);
    if (conversion == '\0') return format_value(value, spec, budget_);
    return format_value(
        Value::string(conversion == 'r' ? repr(value, budget_) : str(value, budget_)), spec,
        budget_);
  }

  Value look_up(std::string_view path) {
    std::size_t at = std::min(path.find_first_of(".["), path.size());
    Value value = argument(path.substr(0, at));
    while (at < path.size()) {
      const bool bracket = path[at] == '[';
      const std::size_t end =
          bracket ? path.find(']', at) : std::min(path.find_first_of(".[", at + 1), path.size());
      if (end == path.npos) fail("a '[' in a format has no end");
      const std::string name(path.substr(at + 1, end - at - 1));
      if (name.empty()) fail("an empty name in a format");
      std::int64_t number = 0;
      const auto parsed = std::from_chars(name.data(), name.data() + name.size(), number);
      const bool is_number = parsed.ec == std::errc{} && parsed.ptr == name.data() + name.size();
      value = !bracket
                  ? member(value, name, budget_)
                  : item(value, is_number ? Value::integer(number) : Value::string(name), budget_);
      at = end + (bracket ? 1 : 0);
    }
    return value;
  }

  Value argument(std::string_view name) {
    if (name.empty() || (name[0] >= '0' && name[0] <= '9')) {
      std::size_t at = 0;
      const std::size_t index = name.empty() ? automatic_++ : read_number(name, at);
      if (index >= arguments_.positional.size())
        fail("a format asks for more values than there are");
      return arguments_.positional[index];
    }
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    fail(fmt::format("a format asks for '{}', which was not given", name));
  }

  const Arguments& arguments_;
  Budget& budget_;
  std::size_t automatic_ = 0;
};

}  // namespace

std::string format_braces(std::string_view format, const Arguments& arguments, Budget& budget) {
  return BraceFormatter(arguments, budget).run(format, 0);
}

std::string format_percent(std::string_view format, const Value& values, Budget& budget) {
  const bool tuple = values.is(Kind::kTuple);
  std::size_t used = 0;
  const auto take = [&]() -> Value {
    if (tuple ? used >= values.items().size() : used >= 1) fail("not enough values for a format");
    return tuple ? values.items()[used++] : (++used, values);
  };
  std::string out;
  bool named = false;
  for (std::size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%') {
      out += format[at];
      continue;
    }
    ++at;
    Value value;
    bool has_value = false;
    if (at < format.size() && format[at] == '(') {
      const std::size_t end = format.find(')', at);
      if (end == format.npos || !values.is(Kind::kDict)) fail("a format needs a dict of values");
      const Value* found = find(values.entries(), format.substr(at + 1, end - at - 1), budget);
      if (found == nullptr) fail("a format asks for a value that was not given");
      value = *found;
      has_value = named = true;
      at = end + 1;
    }
    Spec spec;
    for (;
         at < format.size() && std::string_view("-+ 0#").find(format[at]) != std::string_view::npos;
         ++at) {
      if (format[at] == '-') spec.align = '<';
      if (format[at] == '+' || format[at] == ' ') spec.sign = format[at];
      if (format[at] == '#') spec.alternate = true;
      if (format[at] == '0' && spec.align == '\0') {
        spec.align = '=';
        spec.fill = "0";
      }
    }
    if (spec.align == '<') spec.fill = " ";
    spec.width = read_number(format, at);
    if (at < format.size() && format[at] == '.') {
      ++at;
      spec.precision = static_cast<int>(read_number(format, at));
    }
    if (at >= format.size()) fail("a format ends in the middle");
    const char type = format[at];
    if (type == '%') {
      out += '%';
      continue;
    }
    if (!has_value) value = take();
    if (type == 's' || type == 'r') {
      if (spec.align == '=' || spec.align == '\0') {
        spec.align = '>';
        spec.fill = " ";
      }
      out += format_text(type == 's' ? str(value, budget) : repr(value, budget), spec, budget);
    } else if (std::string_view("dixXo").find(type) != std::string_view::npos) {
      if (!value.is_number())
        fail(fmt::format("%{} needs a number, not '{}'", type, type_name(value)));
      spec.type = type == 'i' ? 'd' : type;
      spec.precision.reset();
      const double real = value.as_real();
      if (std::fabs(real) >= 9.2e18) fail("a number leaves 64 bits");
      out += format_integer(
          value.is_integral() ? value.as_integer() : static_cast<std::int64_t>(real), spec, budget);
    } else if (std::string_view("eEfFgG").find(type) != std::string_view::npos) {
      if (!value.is_number())
        fail(fmt::format("%{} needs a number, not '{}'", type, type_name(value)));
      spec.type = type;
      out += format_real(value.as_real(), spec, budget);
    } else {
      fail(fmt::format("'%{}' is no format", type));
    }
  }
  if (!named && !values.is(Kind::kDict) && used < (tuple ? values.items().size() : 1)) {
    fail("more values than a format has room for");
  }
  budget.allocate(out.size());
  return out;
}

std::string format_time(const std::string& format, std::time_t time) {
  std::tm local{};
  localtime_r(&time, &local);
  std::string plain;  // without what a clock that knows no zone and no microseconds has
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      plain += format[i];
      continue;
    }
    const char type = format[++i];
    if (type == 'f') {
      plain += "000000";
    } else if (type != 'z' && type != 'Z') {
      plain += '%';
      plain += type;
    }
  }
  if (plain.empty()) return plain;
  std::string buffer(plain.size() * 8 + 4096, '\0');
  const std::size_t size = std::strftime(buffer.data(), buffer.size(), plain.c_str(), &local);
  if (size == 0) fail("strftime_now: the format is too wide");
  buffer.resize(size);
  return buffer;
}

}  // namespace haul::tokenizers::jinja
