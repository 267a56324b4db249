#include "core/hub/http.h"

#include <algorithm>

namespace haul::core {
namespace {

constexpr std::size_t kMaxHeaders = 200;
constexpr std::size_t kMaxLine = 64 * 1024;

}  // namespace

const std::string* HttpAnswer::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return &value;
  }
  return nullptr;
}

bool take_header_line(std::string_view line, HttpAnswer* answer) {
  if (line.starts_with("HTTP/")) {
    answer->headers.clear();
    return true;
  }
  if (line.size() > kMaxLine || answer->headers.size() >= kMaxHeaders) return false;
  const std::size_t colon = line.find(':');
  if (colon == line.npos) return true;
  constexpr std::string_view kSpace = " \t\r\n";
  std::string_view value = line.substr(colon + 1);
  value.remove_prefix(std::min(value.find_first_not_of(kSpace), value.size()));
  value.remove_suffix(value.size() - (value.find_last_not_of(kSpace) + 1));
  std::string name(line.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  answer->headers.emplace_back(std::move(name), std::string(value));
  return true;
}

}  // namespace haul::core
