#include "tokenizers/template_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "haul/error.h"
#include "tokenizers/template_text.h"
#include "tokenizers/utf8.h"

namespace haul::tokenizers::jinja {
namespace {

[[noreturn]] void run_out(const char* what) {
  throw Error(ErrorKind::kResource, fmt::format("the template asks for too {}", what));
}

void set_depth(Cell& cell, int below) {
  if (below >= Budget::kValueDepth) run_out("deeply nested values");
  cell.depth = below + 1;
}

}  // namespace

void Budget::step(std::size_t count) {
  if (count > steps_) run_out("many steps");
  steps_ -= count;
}

void Budget::allocate(std::size_t bytes) {
  if (bytes > bytes_) run_out("much memory");
  bytes_ -= bytes;
}

Budget::Level::Level(Budget& budget) : budget_(budget) {
  if (budget.depth_ >= kDepth) run_out("deep a recursion");
  ++budget.depth_;
}

bool Object::attribute(const std::string&, Value&) {
  return false;
}

Value Object::call(Budget&, const Arguments&) {
  fail(fmt::format("'{}' object is not callable", type()));
}

Value Value::undefined(std::string why) {
  Value value;
  auto cell = std::make_shared<TextCell>();
  cell->text = std::move(why);
  value.cell_ = std::move(cell);
  return value;
}

Value Value::boolean(bool boolean) {
  Value value(Kind::kBool);
  value.boolean_ = boolean;
  return value;
}

Value Value::integer(std::int64_t integer) {
  Value value(Kind::kInt);
  value.integer_ = integer;
  return value;
}

Value Value::real(double real) {
  Value value(Kind::kFloat);
  value.real_ = real;
  return value;
}

Value Value::string(std::string text, bool safe) {
  Value value(Kind::kString);
  auto cell = std::make_shared<TextCell>();
  cell->text = std::move(text);
  cell->safe = safe;
  value.cell_ = std::move(cell);
  return value;
}

Value Value::sequence(Kind kind, List items, std::string type) {
  Value value(kind);
  auto cell = std::make_shared<ListCell>();
  int below = 0;
  for (const Value& item : items) below = std::max(below, item.depth());
  set_depth(*cell, below);
  cell->items = std::move(items);
  cell->type = std::move(type);
  value.cell_ = std::move(cell);
  return value;
}

Value Value::dict(Pairs entries) {
  Value value(Kind::kDict);
  auto cell = std::make_shared<DictCell>();
  int below = 0;
  for (const auto& [key, item] : entries) below = std::max({below, key.depth(), item.depth()});
  set_depth(*cell, below);
  cell->entries = std::move(entries);
  value.cell_ = std::move(cell);
  return value;
}

Value Value::object(std::shared_ptr<Object> object) {
  if (object->depth > Budget::kValueDepth) run_out("deeply nested values");
  Value value(Kind::kObject);
  value.cell_ = std::move(object);
  return value;
}

std::string Value::reason() const {
  return cell_ ? text() : "the value is undefined";
}

void fail(const std::string& message) {
  throw Error(ErrorKind::kCorrupt, message);
}

void require_defined(const Value& value) {
  if (value.is_undefined()) fail(value.reason());
}

std::string type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kView:
      return value.type();
    case Kind::kIterator:
      return "generator";
    case Kind::kRange:
      return "range";
    case Kind::kObject:
      return value.as_object().type();
  }
  return "object";
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.as_integer() != 0;
    case Kind::kFloat:
      return value.as_real() != 0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
    case Kind::kRange:
      return !value.items().empty();
    case Kind::kDict:
      return !value.entries().empty();
    case Kind::kIterator:
    case Kind::kObject:
      return true;
  }
  return true;
}

// Python writes an exponent below 1e-4 and from 1e16 on.
std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<std::size_t>(end.ptr - buffer));
  const bool negative = text[0] == '-';
  if (negative) text.remove_prefix(1);
  const std::size_t e = text.find('e');
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);
  const std::string_view power = text.substr(text[e + 1] == '+' ? e + 2 : e + 1);
  int exponent = 0;
  std::from_chars(power.data(), power.data() + power.size(), exponent);
  std::string out = negative ? "-" : "";
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0)
    return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1) {
    return out + digits + std::string(static_cast<std::size_t>(exponent + 1 - count), '0') + ".0";
  }
  return out + digits.substr(0, static_cast<std::size_t>(exponent) + 1) + "." +
         digits.substr(static_cast<std::size_t>(exponent) + 1);
}

std::string repr(std::string_view text) {
  const bool single = text.find('\'') != text.npos && text.find('"') == text.npos;
  const char quote = single ? '"' : '\'';
  std::string out(1, quote);
  for_each_point(text, [&](char32_t point) {
    if (point == static_cast<char32_t>(quote) || point == '\\') {
      out += '\\';
      append_utf8(out, point);
    } else if (point == '\n' || point == '\r' || point == '\t') {
      out += point == '\n' ? "\\n" : point == '\r' ? "\\r" : "\\t";
    } else if (is_printable(point)) {
      append_utf8(out, point);
    } else {
      const auto number = static_cast<std::uint32_t>(point);
      out += number < 0x100     ? fmt::format("\\x{:02x}", number)
             : number < 0x10000 ? fmt::format("\\u{:04x}", number)
                                : fmt::format("\\U{:08x}", number);
    }
  });
  return out + quote;
}

namespace {

void append_repr(std::string& out, const Value& value, Budget& budget);

void append_items(std::string& out, const List& items, Budget& budget) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(out, items[i], budget);
  }
}

void append_repr(std::string& out, const Value& value, Budget& budget) {
  budget.step();
  const std::size_t before = out.size();
  switch (value.kind()) {
    case Kind::kString:
      budget.allocate(value.text().size());
      out += value.safe() ? "Markup(" + repr(value.text()) + ")" : repr(value.text());
      return;
    case Kind::kUndefined:
      out += "Undefined";
      return;
    case Kind::kList:
      out += '[';
      append_items(out, value.items(), budget);
      out += ']';
      return;
    case Kind::kTuple:
      out += '(';
      append_items(out, value.items(), budget);
      out += value.items().size() == 1 ? ",)" : ")";
      return;
    case Kind::kView:
      out += value.type() + "([";
      append_items(out, value.items(), budget);
      out += "])";
      return;
    case Kind::kDict: {
      out += '{';
      for (const auto& [key, item] : value.entries()) {
        if (out.size() > before + 1) out += ", ";
        append_repr(out, key, budget);
        out += ": ";
        append_repr(out, item, budget);
      }
      out += '}';
      return;
    }
    default:
      out += str(value, budget);
  }
}

}  // namespace

std::string repr(const Value& value, Budget& budget) {
  std::string out;
  append_repr(out, value, budget);
  budget.allocate(out.size());
  return out;
}

std::string str(const Value& value, Budget& budget) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "";
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return value.as_integer() != 0 ? "True" : "False";
    case Kind::kInt:
      return std::to_string(value.as_integer());
    case Kind::kFloat:
      return float_repr(value.as_real());
    case Kind::kString:
      budget.allocate(value.text().size());
      return value.text();
    case Kind::kRange:
      return value.type();
    case Kind::kIterator:
    case Kind::kObject:
      return fmt::format("<{} object>", type_name(value));
    default:
      return repr(value, budget);
  }
}

namespace {

bool equal_lists(const List& a, const List& b, Budget& budget) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!equal(a[i], b[i], budget)) return false;
  }
  return true;
}

// Wide enough for every 64-bit integer and every double.
long double exact(const Value& value) {
  return value.is(Kind::kFloat) ? value.as_real() : static_cast<long double>(value.as_integer());
}

bool equal_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.as_integer() == b.as_integer();
  return exact(a) == exact(b);
}

}  // namespace

bool equal(const Value& a, const Value& b, Budget& budget) {
  budget.step();
  if (a.is_number() && b.is_number()) return equal_numbers(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      budget.step(std::min(a.text().size(), b.text().size()) / 64);
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      return equal_lists(a.items(), b.items(), budget);
    case Kind::kDict: {
      if (a.entries().size() != b.entries().size()) return false;
      for (const auto& [key, item] : a.entries()) {
        const Value* other = find(b.entries(), key, budget);
        if (other == nullptr || !equal(item, *other, budget)) return false;
      }
      return true;
    }
    default:
      return a.shared() == b.shared();
  }
}

bool less(const Value& a, const Value& b, Budget& budget) {
  budget.step();
  require_defined(a);
  require_defined(b);
  if (a.is_integral() && b.is_integral()) return a.as_integer() < b.as_integer();
  if (a.is_number() && b.is_number()) return exact(a) < exact(b);
  if (a.is_string() && b.is_string()) {
    budget.step(std::min(a.text().size(), b.text().size()) / 64);
    return a.text() < b.text();
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const std::size_t count = std::min(a.items().size(), b.items().size());
    for (std::size_t i = 0; i < count; ++i) {
      if (!equal(a.items()[i], b.items()[i], budget))
        return less(a.items()[i], b.items()[i], budget);
    }
    return a.items().size() < b.items().size();
  }
  fail(fmt::format("'{}' and '{}' have no order", type_name(a), type_name(b)));
}

bool hashable(const Value& value) {
  if (value.is(Kind::kTuple)) {
    return std::all_of(value.items().begin(), value.items().end(), hashable);
  }
  return !value.is(Kind::kList) && !value.is(Kind::kDict) && !value.is(Kind::kView);
}

const Value* find(const Pairs& entries, const Value& key, Budget& budget) {
  if (key.is_string()) return find(entries, key.text(), budget);
  for (const auto& [name, value] : entries) {
    if (equal(name, key, budget)) return &value;
  }
  return nullptr;
}

const Value* find(const Pairs& entries, std::string_view key, Budget& budget) {
  budget.step(entries.size() / 16);
  for (const auto& [name, value] : entries) {
    if (name.is_string() && name.text() == key) return &value;
  }
  return nullptr;
}

void put(Pairs& entries, Value key, Value value, Budget& budget) {
  if (!hashable(key)) fail(fmt::format("unhashable type: '{}'", type_name(key)));
  if (const Value* found = find(entries, key, budget)) {
    const_cast<Value&>(*found) = std::move(value);
    return;
  }
  budget.allocate(2 * sizeof(Value));
  entries.emplace_back(std::move(key), std::move(value));
}

std::size_t length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return count_points(value.text());
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
    case Kind::kRange:
      return value.items().size();
    case Kind::kDict:
      return value.entries().size();
    default:
      fail(fmt::format("object of type '{}' has no len()", type_name(value)));
  }
}

bool iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kObject:
      return false;
    default:
      return true;
  }
}

List elements(const Value& value, Budget& budget) {
  List items;
  switch (value.kind()) {
    case Kind::kUndefined:
      return items;
    case Kind::kString: {
      const std::string& text = value.text();
      budget.allocate(text.size() * 2 * sizeof(Value));
      for (std::size_t i = 0; i < text.size(); i += utf8_size(text[i])) {
        items.push_back(Value::string(text.substr(i, utf8_size(text[i]))));
      }
      return items;
    }
    case Kind::kDict:
      budget.allocate(value.entries().size() * sizeof(Value));
      for (const auto& [key, item] : value.entries()) items.push_back(key);
      return items;
    case Kind::kIterator: {
      ListCell& cell = value.walk();
      items.assign(cell.items.begin() + static_cast<std::ptrdiff_t>(cell.next), cell.items.end());
      cell.next = cell.items.size();
      return items;
    }
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
    case Kind::kRange:
      budget.step(value.items().size() / 16);
      return value.items();
    default:
      fail(fmt::format("'{}' object is not iterable", type_name(value)));
  }
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace haul::tokenizers::jinja
