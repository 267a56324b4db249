#include "core/base/big_json.h"

#include <bit>
#include <functional>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "haul/error.h"

namespace haul::core {
namespace {

constexpr std::size_t kMaxDepth = 256;
// Below this many keys a scan beats a hash set.
constexpr std::size_t kFewKeys = 16;

std::size_t find_slot(const std::vector<std::string_view>& table, std::string_view key) {
  const std::size_t mask = table.size() - 1;
  std::size_t i = std::hash<std::string_view>()(key) & mask;
  while (table[i].data() != nullptr && table[i] != key) i = (i + 1) & mask;
  return i;
}

std::vector<std::string_view> rehashed(const std::vector<std::string_view>& table) {
  std::vector<std::string_view> larger(table.size() * 2);
  for (const std::string_view key : table) {
    if (key.data() != nullptr) larger[find_slot(larger, key)] = key;
  }
  return larger;
}

void refuse_repeated_keys(simdjson::dom::object object, std::string_view source) {
  const auto refuse = [&](std::string_view key) {
    throw Error(ErrorKind::kCorrupt, fmt::format("{}: the key '{}' is given twice", source, key));
  };
  // The tape counts up to 2^24 - 1 keys and no further.
  if (object.size() <= kFewKeys) {
    for (auto a = object.begin(); a != object.end(); ++a) {
      for (auto b = object.begin(); b != a; ++b) {
        if (a.key() == b.key()) refuse(a.key());
      }
    }
    return;
  }
  // An open table of views: vocabularies have hundreds of thousands of keys.
  std::vector<std::string_view> seen(std::bit_ceil(object.size() * 2));
  std::size_t count = 0;
  for (const auto field : object) {
    if (++count * 2 > seen.size()) seen = rehashed(seen);
    std::string_view& slot = seen[find_slot(seen, field.key)];
    if (slot.data() != nullptr) refuse(field.key);
    slot = field.key;
  }
}

void check(simdjson::dom::element element, std::string_view source) {
  if (element.is_object()) {
    const simdjson::dom::object object = element.get_object();
    refuse_repeated_keys(object, source);
    for (const auto field : object) check(field.value, source);
  } else if (element.is_array()) {
    for (const simdjson::dom::element item : element.get_array()) check(item, source);
  }
}

}  // namespace

BigJson::BigJson(std::string_view text, std::string_view source)
    : parser_(std::make_unique<simdjson::dom::parser>()) {
  auto code = parser_->allocate(text.size(), kMaxDepth);
  if (!code) code = parser_->parse(text.data(), text.size()).get(root_);
  if (code) {
    throw Error(ErrorKind::kCorrupt,
                fmt::format("{}: not valid JSON: {}", source, simdjson::error_message(code)));
  }
  check(root_, source);
}

}  // namespace haul::core
