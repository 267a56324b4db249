#include "tokenizers/template_json.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include "tokenizers/utf8.h"

namespace haul::tokenizers::jinja {
namespace {

class Writer {
 public:
  Writer(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  std::string run(const Value& value) {
    write(value, 1);
    charge();
    return std::move(out_);
  }

 private:
  // Text is charged as it grows: shared values can unfold into very much of it.
  void charge() {
    budget_.allocate(out_.size() - charged_);
    charged_ = out_.size();
  }

  void line(int level) {
    if (!style_.indent) return;
    out_ += '\n';
    for (int i = 0; i < level; ++i) out_ += *style_.indent;
  }

  void quote(std::string_view text) {
    out_ += '"';
    for_each_point(text, [&](char32_t point) { character(point); });
    out_ += '"';
  }

  void character(char32_t point) {
    static constexpr std::string_view kFrom = "\"\\\n\r\t\f\b";
    static constexpr std::string_view kTo = "\"\\nrtfb";
    const std::size_t found = point < 0x80 ? kFrom.find(static_cast<char>(point)) : kFrom.npos;
    if (found != kFrom.npos) {
      out_ += '\\';
      out_ += kTo[found];
    } else if (point < 0x20 ||
               (style_.ascii && point >= 0x7F && point < 0x10000 && point != 0x7F)) {
      out_ += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(point));
    } else if (style_.ascii && point >= 0x10000) {
      const auto rest = static_cast<std::uint32_t>(point - 0x10000);
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    } else {
      append_utf8(out_, point);
    }
  }

  std::string scalar(const Value& value) {
    switch (value.kind()) {
      case Kind::kNone:
        return "null";
      case Kind::kBool:
        return value.as_integer() != 0 ? "true" : "false";
      case Kind::kFloat:
        if (std::isnan(value.as_real())) return "NaN";
        if (std::isinf(value.as_real())) return value.as_real() < 0 ? "-Infinity" : "Infinity";
        return float_repr(value.as_real());
      default:
        return str(value, budget_);
    }
  }

  static bool is_scalar(const Value& value) { return value.is_number() || value.is(Kind::kNone); }

  void write(const Value& value, int level) {
    budget_.step();
    charge();
    if (value.is_string()) {
      quote(value.text());
    } else if (is_scalar(value)) {
      out_ += scalar(value);
    } else if (value.is_sequence()) {
      sequence(value.items(), level);
    } else if (value.is(Kind::kDict)) {
      dict(value.entries(), level);
    } else {
      fail(fmt::format("a value of type {} does not fit into JSON", type_name(value)));
    }
  }

  void sequence(const List& items, int level) {
    out_ += '[';
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item;
      line(level);
      write(items[i], level + 1);
    }
    if (!items.empty()) line(level - 1);
    out_ += ']';
  }

  void dict(const Pairs& entries, int level) {
    Pairs sorted;
    if (style_.sorted) {
      budget_.allocate(entries.size() * 2 * sizeof(Value));
      sorted = entries;
      std::stable_sort(sorted.begin(), sorted.end(), [&](const auto& a, const auto& b) {
        return less(a.first, b.first, budget_);
      });
    }
    out_ += '{';
    bool first = true;
    for (const auto& [key, value] : style_.sorted ? sorted : entries) {
      if (!first) out_ += style_.item;
      first = false;
      line(level);
      if (!key.is_string() && !is_scalar(key)) {
        fail(fmt::format("a key of type {} does not fit into JSON", type_name(key)));
      }
      quote(key.is_string() ? key.text() : scalar(key));
      out_ += style_.key;
      write(value, level + 1);
    }
    if (!first) line(level - 1);
    out_ += '}';
  }

  const JsonStyle& style_;
  Budget& budget_;
  std::string out_;
  std::size_t charged_ = 0;
};

Value text_of(const std::string& text) {
  return Value::string(is_utf8(text) ? text : to_utf8(text));
}

}  // namespace

Value from_json(const core::Json& json, Budget& budget) {
  switch (json.type()) {
    case core::Json::value_t::null:
      return Value::none();
    case core::Json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case core::Json::value_t::number_integer:
      return Value::integer(json.get<std::int64_t>());
    case core::Json::value_t::number_unsigned: {
      const auto number = json.get<std::uint64_t>();
      if (number > INT64_MAX) fail(fmt::format("{} is no 64-bit integer", number));
      return Value::integer(static_cast<std::int64_t>(number));
    }
    case core::Json::value_t::number_float:
      return Value::real(json.get<double>());
    case core::Json::value_t::string:
      return text_of(json.get_ref<const std::string&>());
    case core::Json::value_t::array: {
      List items;
      items.reserve(json.size());
      for (const core::Json& item : json) items.push_back(from_json(item, budget));
      return Value::list(std::move(items));
    }
    case core::Json::value_t::object: {
      Pairs entries;
      entries.reserve(json.size());
      for (const auto& [key, item] : json.items()) {
        entries.emplace_back(text_of(key), from_json(item, budget));
      }
      return Value::dict(std::move(entries));
    }
    default:
      fail("the context holds something that is no JSON");
  }
}

std::string to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  return Writer(style, budget).run(value);
}

}  // namespace haul::tokenizers::jinja
