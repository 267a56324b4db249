#include "runtime/generate/stop_strings.h"

#include <algorithm>
#include <utility>

namespace haul::runtime {

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  std::erase_if(strings_, [](const std::string& string) { return string.empty(); });
}

std::string StopStrings::push(std::string_view text) {
  if (found_) return {};
  pending_ += text;
  // By their ends, so that it does not matter in which pieces the text comes.
  std::size_t first = std::string::npos;
  std::size_t end = std::string::npos;
  for (const std::string& string : strings_) {
    const std::size_t at = pending_.find(string);
    if (at == std::string::npos || at + string.size() > end) continue;
    first = at + string.size() < end ? at : std::min(first, at);
    end = at + string.size();
  }
  found_ = first != std::string::npos;
  const std::size_t shown = found_ ? first : pending_.size() - held_back();
  std::string result = pending_.substr(0, shown);
  pending_.erase(0, found_ ? pending_.size() : shown);
  return result;
}

std::string StopStrings::finish() {
  return std::exchange(pending_, {});
}

// The longest end of what is pending that begins one of the strings.
std::size_t StopStrings::held_back() const {
  std::size_t longest = 0;
  for (const std::string& string : strings_) {
    for (std::size_t size = std::min(string.size() - 1, pending_.size()); size > longest; --size) {
      if (pending_.ends_with(std::string_view(string).substr(0, size))) longest = size;
    }
  }
  return longest;
}

}  // namespace haul::runtime
