#include "core/base/user_folders.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace haul::core {
namespace {

// Unset and empty are alike.
std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string expand_path(std::string_view text) {
  std::string result;
  if (text == "~" || text.starts_with("~/")) {
    result = variable("HOME");
    text.remove_prefix(1);
  }
  while (!text.empty()) {
    const std::size_t dollar = std::min(text.find('$'), text.size());
    result += text.substr(0, dollar);
    text.remove_prefix(dollar);
    if (text.empty()) break;
    const bool braces = text.starts_with("${");
    const std::string_view rest = text.substr(braces ? 2 : 1);
    std::size_t end = 0;
    while (end < rest.size() &&
           (std::isalnum(static_cast<unsigned char>(rest[end])) != 0 || rest[end] == '_')) {
      ++end;
    }
    const bool closed = !braces || rest.substr(end).starts_with("}");
    const std::string name(rest.substr(0, end));
    const std::size_t length = (braces ? 3 : 1) + end;
    if (name.empty() || !closed || std::getenv(name.c_str()) == nullptr) {
      result += text.front();
      text.remove_prefix(1);
    } else {
      result += variable(name.c_str());
      text.remove_prefix(length);
    }
  }
  return result;
}

std::filesystem::path hf_home() {
  if (const std::string home = variable("HF_HOME"); !home.empty()) return expand_path(home);
  std::string caches = variable("XDG_CACHE_HOME");
  if (caches.empty()) caches = "~/.cache";
  return std::filesystem::path(expand_path(caches)) / "huggingface";
}

}  // namespace haul::core
