#include "tokenizers/template_methods.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>

#include <fmt/format.h>

#include "tokenizers/template_arguments.h"
#include "tokenizers/template_format.h"
#include "tokenizers/template_operators.h"
#include "tokenizers/template_text.h"
#include "tokenizers/utf8.h"

namespace haul::tokenizers::jinja {
namespace {

using Table = std::unordered_map<std::string_view, Function>;

class Method : public Object {
 public:
  Method(Value self, Function function) : self_(std::move(self)), function_(function) {
    depth = self_.depth() + 1;
  }
  std::string type() const override { return "builtin_function_or_method"; }
  bool callable() const override { return true; }
  Value call(Budget& budget, const Arguments& arguments) override {
    return function_(budget, self_, arguments);
  }

 private:
  Value self_;
  Function function_;
};

Value text_like(const Value& self, std::string text, Budget& budget) {
  budget.allocate(text.size());
  return Value::string(std::move(text), self.safe());
}

template <std::string (*convert)(std::string_view)>
Value converted(Budget& budget, const Value& self, const Arguments& arguments) {
  const Bound none("this method", arguments, {});
  budget.step(self.text().size() / 16);
  return text_like(self, convert(self.text()), budget);
}

template <Side side>
Value stripped(Budget& budget, const Value& self, const Arguments& arguments) {
  const Bound bound("strip", arguments, {"chars"});
  std::optional<std::string_view> set;
  if (bound.some(0)) set = bound.text(0);
  budget.step(set ? set->size() : 0);
  return text_like(self, std::string(strip(self.text(), set, side)), budget);
}

Value texts(const Value& self, const std::vector<std::string_view>& parts, Budget& budget) {
  budget.step(parts.size());
  budget.allocate(parts.size() * 2 * sizeof(Value) + self.text().size());
  List items;
  items.reserve(parts.size());
  for (const std::string_view part : parts)
    items.push_back(Value::string(std::string(part), self.safe()));
  return Value::list(std::move(items));
}

template <bool from_right>
Value split_text(Budget& budget, const Value& self, const Arguments& arguments) {
  const Bound bound("split", arguments, {"sep", "maxsplit"});
  const std::int64_t limit = bound.integer(1, -1);
  if (!bound.some(0)) return texts(self, split_white(self.text(), limit, from_right), budget);
  const std::string& separator = bound.text(0);
  if (separator.empty()) fail("split() needs a separator that is not empty");
  return texts(self, split(self.text(), separator, limit, from_right), budget);
}

Value split_text_lines(Budget& budget, const Value& self, const Arguments& arguments) {
  const Bound bound("splitlines", arguments, {"keepends"});
  return texts(self, split_lines(self.text(), bound.flag(0)), budget);
}

template <bool from_right>
Value partition(Budget& budget, const Value& self, const Arguments& arguments) {
  const Bound bound("partition", arguments, {"sep"}, 1);
  const std::string& separator = bound.text(0);
  if (separator.empty()) fail("partition() needs a separator that is not empty");
  const std::string& text = self.text();
  const std::size_t at = from_right ? text.rfind(separator) : text.find(separator);
  budget.allocate(text.size());
  const auto piece = [&](std::string part) { return Value::string(std::move(part), self.safe()); };
  if (at == text.npos) {
    return from_right ? Value::tuple({piece(""), piece(""), self})
                      : Value::tuple({self, piece(""), piece("")});
  }
  return Value::tuple(
      {piece(text.substr(0, at)), piece(separator), piece(text.substr(at + separator.size()))});
}

// The part of the text that start and end leave; nothing when they leave none, not even an empty
// one.
std::optional<std::string_view> window(const Value& self, const Bound& bound, std::size_t& first) {
  const auto size = static_cast<std::int64_t>(count_points(self.text()));
  const auto place = [&](std::size_t parameter, std::int64_t otherwise) {
    std::int64_t at = bound.some(parameter) ? bound.integer(parameter, 0) : otherwise;
    if (at < 0) at = std::max<std::int64_t>(at + size, 0);
    return at;
  };
  const std::int64_t begin = place(1, 0);
  const std::int64_t end = std::min(place(2, size), size);
  first = static_cast<std::size_t>(begin);
  if (begin > end) return std::nullopt;
  return characters(self.text(), first, static_cast<std::size_t>(end));
}

template <bool at_end>
Value has_affix(Budget& budget, const Value& self, const Arguments& arguments) {
  const Bound bound(at_end ? "endswith" : "startswith", arguments, {"prefix", "start", "end"}, 1);
  require_defined(bound[0]);
  std::size_t first = 0;
  const std::optional<std::string_view> text = window(self, bound, first);
  const List options = bound[0].is(Kind::kTuple) ? bound[0].items() : List{bound[0]};
  budget.step(options.size());
  for (const Value& option : options) {
    if (!option.is_string())
      fail("startswith() and endswith() need a string or a tuple of strings");
    if (text && (at_end ? text->ends_with(option.text()) : text->starts_with(option.text()))) {
      return Value::boolean(true);
    }
  }
  return Value::boolean(false);
}

enum class Search { kFind, kIndex };

template <Search search, bool from_right>
Value found_at(Budget& budget, const Value& self, const Arguments& arguments) {
  const Bound bound("find", arguments, {"sub", "start", "end"}, 1);
  std::size_t first = 0;
  const std::optional<std::string_view> text = window(self, bound, first);
  budget.step(self.text().size() / 16);
  const std::string& part = bound.text(0);
  const std::size_t at = !text        ? std::string::npos
                         : from_right ? text->rfind(part)
                                      : text->find(part);
  if (at != std::string::npos) {
    return Value::integer(static_cast<std::int64_t>(first + count_points(text->substr(0, at))));
  }
  if (search == Search::kIndex) fail("substring not found");
  return Value::integer(-1);
}

Value counted(Budget& budget, const Value& self, const Arguments& arguments) {
  const Bound bound("count", arguments, {"sub", "start", "end"}, 1);
  std::size_t first = 0;
  const std::optional<std::string_view> text = window(self, bound, first);
  budget.step(self.text().size() / 16);
  return Value::integer(text ? static_cast<std::int64_t>(count(*text, bound.text(0))) : 0);
}

Value replaced(Budget& budget, const Value& self, const Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  const std::string& with = bound.text(1);
  const bool escapes = self.safe() && !bound[1].safe();
  return Value::string(replace(self.text(), bound.text(0), escapes ? escape_html(with) : with,
                               bound.integer(2, -1), budget),
                       self.safe());
}

Value joined(Budget& budget, const Value& self, const Arguments& arguments) {
  const Bound bound("join", arguments, {"iterable"}, 1);
  std::string out;
  bool first = true;
  for (const Value& part : elements(bound[0], budget)) {
    if (!part.is_string()) fail(fmt::format("join() needs strings, not '{}'", type_name(part)));
    budget.allocate(self.text().size() + part.text().size());
    if (!first) out += self.text();
    first = false;
    out += self.safe() && !part.safe() ? escape_html(part.text()) : part.text();
  }
  return Value::string(std::move(out), self.safe());
}

Value formatted(Budget& budget, const Value& self, const Arguments& arguments) {
  if (!self.safe()) return Value::string(format_braces(self.text(), arguments, budget));
  Arguments escaped = arguments;
  const auto escape = [](Value& value) {
    if (value.is_string() && !value.safe()) value = Value::string(escape_html(value.text()), true);
  };
  for (Value& value : escaped.positional) escape(value);
  for (auto& [name, value] : escaped.named) escape(value);
  return Value::string(format_braces(self.text(), escaped, budget), true);
}

Value without_prefix(Budget& budget, const Value& self, const Arguments& arguments) {
  const Bound bound("removeprefix", arguments, {"prefix"}, 1);
  const bool has = self.text().starts_with(bound.text(0));
  return text_like(self, has ? self.text().substr(bound.text(0).size()) : self.text(), budget);
}

Value without_suffix(Budget& budget, const Value& self, const Arguments& arguments) {
  const Bound bound("removesuffix", arguments, {"suffix"}, 1);
  const std::string& suffix = bound.text(0);
  const bool has = !suffix.empty() && self.text().ends_with(suffix);
  return text_like(
      self, has ? self.text().substr(0, self.text().size() - suffix.size()) : self.text(), budget);
}

template <char align>
Value justified(Budget& budget, const Value& self, const Arguments& arguments) {
  const Bound bound("this method", arguments, {"width", "fillchar"}, 1);
  const std::string fill = bound.has(1) ? bound.text(1) : " ";
  if (count_points(fill) != 1) fail("the fill must be one character");
  const std::int64_t width = bound.integer(0, 0);
  const auto size = static_cast<std::int64_t>(count_points(self.text()));
  if (width <= size) return self;
  const auto missing = static_cast<std::size_t>(width - size);
  budget.allocate(missing >= Budget::kBytes ? SIZE_MAX
                                            : missing * fill.size() + self.text().size());
  // Python puts the odd character on the left when the width is odd.
  const std::size_t left = align == '<' ? 0
                           : align == '>'
                               ? missing
                               : missing / 2 + (missing & static_cast<std::size_t>(width) & 1);
  std::string out;
  for (std::size_t i = 0; i < left; ++i) out += fill;
  out += self.text();
  for (std::size_t i = left; i < missing; ++i) out += fill;
  return Value::string(std::move(out), self.safe());
}

Value zero_filled(Budget& budget, const Value& self, const Arguments& arguments) {
  const Bound bound("zfill", arguments, {"width"}, 1);
  const std::int64_t width = bound.integer(0, 0);
  const auto size = static_cast<std::int64_t>(count_points(self.text()));
  if (width <= size) return self;
  const auto missing = static_cast<std::size_t>(width - size);
  budget.allocate(missing + self.text().size());
  std::string out = self.text();
  const bool sign = !out.empty() && (out[0] == '+' || out[0] == '-');
  out.insert(sign ? 1 : 0, missing, '0');
  return Value::string(std::move(out), self.safe());
}

template <bool (*wanted)(char32_t)>
Value all_are(Budget& budget, const Value& self, const Arguments& arguments) {
  const Bound none("this method", arguments, {});
  const std::string& text = self.text();
  budget.step(text.size() / 16);
  bool all = !text.empty();
  for_each_point(text, [&](char32_t point) { all = all && wanted(point); });
  return Value::boolean(all);
}

template <bool (*wanted)(std::string_view)>
Value whole_is(Budget& budget, const Value& self, const Arguments& arguments) {
  const Bound none("this method", arguments, {});
  budget.step(self.text().size() / 16);
  return Value::boolean(wanted(self.text()));
}

bool is_alphanumeric(char32_t point) {
  return is_alpha(point) || is_numeric(point);
}

bool is_ascii(std::string_view text) {
  return ascii_prefix(text) == text.size();
}

bool is_title(std::string_view text) {
  return title(text) == text && std::any_of(text.begin(), text.end(), [](char c) {
           return (c >= 'A' && c <= 'Z') || static_cast<unsigned char>(c) >= 0x80;
         });
}

const Table& text_methods() {
  static const Table table = {
      {"capitalize", converted<capitalize>},
      {"casefold", converted<lower>},
      {"center", justified<'^'>},
      {"count", counted},
      {"endswith", has_affix<true>},
      {"find", found_at<Search::kFind, false>},
      {"format", formatted},
      {"index", found_at<Search::kIndex, false>},
      {"isalnum", all_are<is_alphanumeric>},
      {"isalpha", all_are<is_alpha>},
      {"isascii", whole_is<is_ascii>},
      {"isdecimal", all_are<is_digit>},
      {"isdigit", all_are<is_digit>},
      {"islower", whole_is<is_lower>},
      {"isnumeric", all_are<is_numeric>},
      {"isspace", all_are<is_white>},
      {"istitle", whole_is<is_title>},
      {"isupper", whole_is<is_upper>},
      {"join", joined},
      {"ljust", justified<'<'>},
      {"lower", converted<lower>},
      {"lstrip", stripped<Side::kLeft>},
      {"partition", partition<false>},
      {"removeprefix", without_prefix},
      {"removesuffix", without_suffix},
      {"replace", replaced},
      {"rfind", found_at<Search::kFind, true>},
      {"rindex", found_at<Search::kIndex, true>},
      {"rjust", justified<'>'>},
      {"rpartition", partition<true>},
      {"rsplit", split_text<true>},
      {"rstrip", stripped<Side::kRight>},
      {"split", split_text<false>},
      {"splitlines", split_text_lines},
      {"startswith", has_affix<false>},
      {"strip", stripped<Side::kBoth>},
      {"swapcase", converted<swapcase>},
      {"title", converted<title>},
      {"upper", converted<upper>},
      {"zfill", zero_filled},
  };
  return table;
}

Value dict_get(Budget& budget, const Value& self, const Arguments& arguments) {
  const Bound bound("get", arguments, {"key", "default"}, 1);
  if (!arguments.named.empty()) fail("get() takes no named arguments");
  if (!hashable(bound[0])) fail(fmt::format("unhashable type: '{}'", type_name(bound[0])));
  if (const Value* found = find(self.entries(), bound[0], budget)) return *found;
  return bound.has(1) ? bound[1] : Value::none();
}

Value dict_items(Budget& budget, const Value& self, const Arguments& arguments) {
  const Bound none("items", arguments, {});
  budget.step(self.entries().size());
  budget.allocate(self.entries().size() * 4 * sizeof(Value));
  List items;
  for (const auto& [key, value] : self.entries()) items.push_back(Value::tuple({key, value}));
  return Value::view("dict_items", std::move(items));
}

Value dict_keys(Budget& budget, const Value& self, const Arguments& arguments) {
  const Bound none("keys", arguments, {});
  return Value::view("dict_keys", elements(self, budget));
}

Value dict_values(Budget& budget, const Value& self, const Arguments& arguments) {
  const Bound none("values", arguments, {});
  budget.allocate(self.entries().size() * sizeof(Value));
  List items;
  for (const auto& [key, value] : self.entries()) items.push_back(value);
  return Value::view("dict_values", std::move(items));
}

Value copied(Budget&, const Value& self, const Arguments& arguments) {
  const Bound none("copy", arguments, {});
  return self;
}

Value list_count(Budget& budget, const Value& self, const Arguments& arguments) {
  const Bound bound("count", arguments, {"value"}, 1);
  return Value::integer(
      std::count_if(self.items().begin(), self.items().end(),
                    [&](const Value& item) { return equal(item, bound[0], budget); }));
}

Value list_index(Budget& budget, const Value& self, const Arguments& arguments) {
  const Bound bound("index", arguments, {"value"}, 1);
  for (std::size_t i = 0; i < self.items().size(); ++i) {
    if (equal(self.items()[i], bound[0], budget))
      return Value::integer(static_cast<std::int64_t>(i));
  }
  fail("the value is not in the list");
}

const Table& dict_methods() {
  static const Table table = {{"get", dict_get},
                              {"items", dict_items},
                              {"keys", dict_keys},
                              {"values", dict_values},
                              {"copy", copied}};
  return table;
}

const Table& list_methods() {
  static const Table table = {{"count", list_count}, {"index", list_index}, {"copy", copied}};
  return table;
}

}  // namespace

bool find_method(const Value& self, const std::string& name, Value& method) {
  const Table* table = self.is_string()                              ? &text_methods()
                       : self.is(Kind::kDict)                        ? &dict_methods()
                       : self.is_sequence() || self.is(Kind::kRange) ? &list_methods()
                                                                     : nullptr;
  if (table == nullptr || (name == "copy" && !self.is(Kind::kDict) && !self.is(Kind::kList))) {
    return false;
  }
  const auto found = table->find(name);
  if (found == table->end()) return false;
  method = Value::object(std::make_shared<Method>(self, found->second));
  return true;
}

bool is_forbidden(const Value& self, const std::string& name) {
  if (name.starts_with("__") && name.ends_with("__")) return true;
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  static constexpr std::string_view kList[] = {"append", "clear", "pop",    "reverse",
                                               "insert", "sort",  "extend", "remove"};
  const auto among = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  return (self.is(Kind::kDict) && among(kDict)) || (self.is(Kind::kList) && among(kList));
}

}  // namespace haul::tokenizers::jinja
