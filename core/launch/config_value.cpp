#include "core/launch/config_value.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include <fmt/format.h>

#include "core/base/json.h"
#include "haul/error.h"

namespace haul::core {
namespace {

bool is_one_of(std::string_view text, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* word) { return text == word; });
}

// A text that every YAML reader takes for itself.
bool is_plainly_text(const std::string& text) {
  if (text.empty()) return false;
  if (std::isalpha(static_cast<unsigned char>(text[0])) == 0 && text[0] != '/') return false;
  const bool simple = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return c < 0x80 && (std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.' || c == '/');
  });
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return simple && !is_one_of(lower, {"y", "n", "yes", "no", "on", "off", "true", "false", "null"});
}

// Both YAML and JSON read this. What a YAML reader may refuse as it stands is escaped.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const std::string_view rest = std::string_view(text).substr(i);
    if (byte == '"' || byte == '\\') {
      result += '\\';
      result += text[i];
    } else if (byte < 0x20 || byte == 0x7f) {
      result += fmt::format("\\u{:04x}", byte);
    } else if (byte == 0xc2 && rest.size() > 1 && static_cast<unsigned char>(rest[1]) < 0xa0) {
      result += fmt::format("\\u{:04x}", static_cast<unsigned char>(rest[1]));
      ++i;
    } else if (rest.starts_with("\u2028") || rest.starts_with("\u2029")) {
      result += rest.starts_with("\u2028") ? "\\u2028" : "\\u2029";
      i += 2;
    } else if (rest.starts_with("\ufeff")) {
      result += "\\ufeff";
      i += 2;
    } else if (rest.starts_with("\xef\xbf\xbe") || rest.starts_with("\xef\xbf\xbf")) {
      result += rest.starts_with("\xef\xbf\xbe") ? "\\ufffe" : "\\uffff";
      i += 2;
    } else {
      result += text[i];
    }
  }
  return result + "\"";
}

std::string yaml_key(const std::string& key) {
  return is_plainly_text(key) ? key : quoted(key);
}

// Whether a text that stood without quotes may be a number, a date or a word with a meaning, and
// can stand without them again. Any other is a text, with quotes or without.
bool stays_plain(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  const bool typed = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return c < 0x80 &&
           (std::isalnum(c) != 0 || std::string_view("+-._:~ ").find(c) != std::string_view::npos);
  });
  if (text.empty() || !typed || text.back() == ':' || text.back() == ' ' || text[0] == ' ' ||
      text[0] == ':' || text.find(": ") != text.npos) {
    return false;
  }
  if (text[0] != '-') return true;
  return text.size() > 1 && (kDigits.find(text[1]) != kDigits.npos || text[1] == '.') &&
         text.find("---") != 0;
}

std::string yaml_scalar(const ConfigValue& value) {
  if (is_null(value)) return "null";
  const bool plain = is_plainly_text(value.text) || (value.plain && stays_plain(value.text));
  return plain ? value.text : quoted(value.text);
}

void append_yaml(const ConfigValue& value, const std::string& indent, std::string& out);

// After "key:" or "-": on the same line, or in a block below.
void append_child(const ConfigValue& value, const std::string& indent, std::string& out) {
  if (value.kind == ConfigValue::Kind::kScalar) {
    out += " " + yaml_scalar(value) + "\n";
  } else if (value.items.empty()) {
    out += value.kind == ConfigValue::Kind::kMap ? " {}\n" : " []\n";
  } else {
    out += "\n";
    append_yaml(value, indent + "  ", out);
  }
}

void append_yaml(const ConfigValue& value, const std::string& indent, std::string& out) {
  for (const ConfigValue& item : value.items) {
    out += indent + (value.kind == ConfigValue::Kind::kMap ? yaml_key(item.key) + ":" : "-");
    append_child(item, indent, out);
  }
}

void append_json(const ConfigValue& value, const std::string& indent, std::string& out) {
  if (value.kind == ConfigValue::Kind::kScalar) {
    out += value.plain && Json::accept(value.text) ? value.text : quoted(value.text);
    return;
  }
  const bool map = value.kind == ConfigValue::Kind::kMap;
  const char* separator = "\n";
  out += map ? "{" : "[";
  for (const ConfigValue& item : value.items) {
    out += separator + indent + "  ";
    if (map) out += quoted(item.key) + ": ";
    append_json(item, indent + "  ", out);
    separator = ",\n";
  }
  if (!value.items.empty()) out += "\n" + indent;
  out += map ? "}" : "]";
}

ConfigValue from_json(const Json& json) {
  ConfigValue value;
  if (json.is_object()) {
    value.kind = ConfigValue::Kind::kMap;
    for (const auto& [key, member] : json.items()) {
      value.items.push_back(from_json(member));
      value.items.back().key = key;
    }
  } else if (json.is_array()) {
    value.kind = ConfigValue::Kind::kList;
    for (const Json& item : json) value.items.push_back(from_json(item));
  } else if (json.is_string()) {
    value.text = json.get<std::string>();
  } else {
    value.text = json.dump();
    value.plain = true;
  }
  return value;
}

}  // namespace

ConfigValue parse_json_config(std::string_view text, std::string_view source) {
  return from_json(parse_json(text, source));
}

std::string write_yaml(const ConfigValue& value) {
  std::string out;
  append_yaml(value, "", out);
  return out.empty() ? "{}\n" : out;
}

std::string write_json(const ConfigValue& value) {
  std::string out;
  append_json(value, "", out);
  return out + "\n";
}

bool is_null(const ConfigValue& value) {
  return value.kind == ConfigValue::Kind::kScalar && value.plain &&
         is_one_of(value.text, {"", "~", "null", "Null", "NULL"});
}

std::optional<bool> as_bool(const ConfigValue& value) {
  if (value.kind != ConfigValue::Kind::kScalar || !value.plain) return std::nullopt;
  if (is_one_of(value.text, {"yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"})) {
    return true;
  }
  if (is_one_of(value.text, {"no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"})) {
    return false;
  }
  return std::nullopt;
}

std::optional<long long> as_integer(const ConfigValue& value) {
  if (value.kind != ConfigValue::Kind::kScalar || !value.plain) return std::nullopt;
  const std::string& text = value.text;
  // A leading zero is an octal number to some readers and a decimal one to others.
  const std::size_t first = text.starts_with('-') ? 1 : 0;
  if (text.size() > first + 1 && text[first] == '0') return std::nullopt;
  long long number = 0;
  const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc{} || stop != text.data() + text.size()) return std::nullopt;
  return number;
}

ConfigValue text_value(std::string text) {
  ConfigValue value;
  value.text = std::move(text);
  return value;
}

ConfigValue bool_value(bool value) {
  ConfigValue result;
  result.text = value ? "true" : "false";
  result.plain = true;
  return result;
}

ConfigValue integer_value(long long value) {
  ConfigValue result;
  result.text = std::to_string(value);
  result.plain = true;
  return result;
}

}  // namespace haul::core
