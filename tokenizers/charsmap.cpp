#include "tokenizers/charsmap.h"

#include <cstring>

#include <fmt/format.h>

#include "haul/error.h"
#include "tokenizers/utf8.h"

namespace haul::tokenizers {
namespace {

// A unit of the double array.
bool has_leaf(std::uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}
std::uint32_t value(std::uint32_t unit) {
  return unit & 0x7FFFFFFF;
}
std::uint32_t label(std::uint32_t unit) {
  return unit & (0x80000000 | 0xFF);
}
std::uint32_t offset(std::uint32_t unit) {
  return unit >> 10 << ((unit & (1u << 9)) >> 6);
}

}  // namespace

Charsmap::Charsmap(std::string_view bytes) {
  std::uint32_t size = 0;
  if (bytes.size() < sizeof(size)) {
    throw Error(ErrorKind::kCorrupt, "the charsmap is shorter than its header");
  }
  std::memcpy(&size, bytes.data(), sizeof(size));
  bytes.remove_prefix(sizeof(size));
  if (size > bytes.size() || size % sizeof(std::uint32_t) != 0) {
    throw Error(ErrorKind::kCorrupt, fmt::format("the charsmap declares a trie of {} bytes and has "
                                                 "{}",
                                                 size, bytes.size()));
  }
  units_.resize(size / sizeof(std::uint32_t));
  if (size != 0) std::memcpy(units_.data(), bytes.data(), size);
  replacements_ = bytes.substr(size);
  if (!is_utf8(replacements_)) {
    throw Error(ErrorKind::kCorrupt, "the charsmap's replacements are not UTF-8");
  }
  replacements_.push_back('\0');
}

std::optional<Charsmap::Found> Charsmap::shortest(std::string_view text) const {
  return find(text, true);
}

std::optional<Charsmap::Found> Charsmap::longest(std::string_view text) const {
  return find(text, false);
}

std::optional<Charsmap::Found> Charsmap::find(std::string_view text, bool first) const {
  std::optional<Found> best;
  if (units_.empty()) return best;
  std::uint32_t at = offset(units_[0]);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0) break;
    at ^= byte;
    if (at >= units_.size()) break;
    const std::uint32_t unit = units_[at];
    if (label(unit) != byte) break;
    at ^= offset(unit);
    if (!has_leaf(unit)) continue;
    if (at >= units_.size()) break;
    const std::uint32_t start = value(units_[at]);
    if (start >= replacements_.size() || is_continuation(replacements_[start])) break;
    best = Found{i + 1, std::string_view(replacements_.c_str() + start)};
    if (first) break;
  }
  return best;
}

}  // namespace haul::tokenizers
