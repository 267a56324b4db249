#include "cli/ids.h"

#include <charconv>

#include <fmt/format.h>

#include "haul/error.h"

namespace haul::cli {

std::vector<TokenId> parse_ids(std::string_view flag, const std::string& text) {
  std::vector<TokenId> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    TokenId id = 0;
    const auto [stop, code] = std::from_chars(at, end, id);
    if (code != std::errc{} || (stop < end && *stop != ',')) {
      throw Error(ErrorKind::kUsage, fmt::format("{} '{}': not a list of ids", flag, text),
                  fmt::format("give ids with commas between them: {} 1,2,3", flag));
    }
    ids.push_back(id);
    at = stop < end ? stop + 1 : stop;
  }
  return ids;
}

}  // namespace haul::cli
