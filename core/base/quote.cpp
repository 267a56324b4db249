#include "core/base/quote.h"

#include <fmt/format.h>

#include "core/base/utf8.h"

namespace haul::core {

std::string quote(std::string_view text) {
  constexpr std::size_t kMaxShown = 200;
  const bool cut = text.size() > kMaxShown;
  if (cut) {
    text = text.substr(0, kMaxShown);
    // Not in the middle of a character.
    for (int i = 0; i < 3 && !is_utf8(text); ++i) text.remove_suffix(1);
  }
  const bool utf8 = is_utf8(text);
  std::string result = "'";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool control = byte < 0x20 || byte == 0x7f;
    if (control || (!utf8 && byte >= 0x80)) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += c;
    }
  }
  result += cut ? "…'" : "'";
  return result;
}

}  // namespace haul::core
