#include "haul/bytes.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "haul/error.h"

namespace haul {
namespace {

struct Unit {
  std::string_view suffix;  // lower case
  double factor;
  bool decimal;
};

constexpr std::array<Unit, 8> kUnits{{{"kib", 0x1p10, false},
                                      {"mib", 0x1p20, false},
                                      {"gib", 0x1p30, false},
                                      {"tib", 0x1p40, false},
                                      {"kb", 1e3, true},
                                      {"mb", 1e6, true},
                                      {"gb", 1e9, true},
                                      {"tb", 1e12, true}}};

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

[[noreturn]] void refuse(std::string_view text) {
  throw Error(ErrorKind::kUsage, fmt::format("'{}' is not a size", text),
              "write a size like 10GiB, 1.5GB, 512MiB or a plain number of bytes");
}

}  // namespace

Bytes parse_bytes(std::string_view text) {
  const std::string lowered = lower(text);
  std::string_view digits = lowered;
  double factor = 1;
  for (const Unit& unit : kUnits) {
    if (!digits.ends_with(unit.suffix)) continue;
    digits.remove_suffix(unit.suffix.size());
    factor = unit.decimal && text.back() == 'b' ? unit.factor / 8 : unit.factor;
    break;
  }
  if (digits.empty() || digits.find_first_not_of("0123456789.") != digits.npos) refuse(text);

  const char* end = digits.data() + digits.size();
  if (factor == 1) {
    Bytes count = 0;
    const auto [stop, code] = std::from_chars(digits.data(), end, count);
    if (code != std::errc{} || stop != end) refuse(text);
    return count;
  }
  double value = 0;
  const auto [stop, code] = std::from_chars(digits.data(), end, value);
  if (code != std::errc{} || stop != end) refuse(text);
  const double bytes = std::floor(value * factor);
  if (bytes >= 0x1p63) {
    throw Error(ErrorKind::kUsage, fmt::format("'{}' is too large for a size", text));
  }
  return static_cast<Bytes>(bytes);
}

std::string format_bytes(Bytes bytes) {
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  return format_fractional_bytes(static_cast<double>(bytes));
}

std::string format_fractional_bytes(double bytes) {
  constexpr std::array<std::string_view, 6> kNames{"bytes", "KB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kNames.size()) {
    bytes /= 1024;
    ++unit;
  }
  std::string digits = fmt::format("{:.2f}", bytes);
  if (digits.ends_with("0")) digits.pop_back();
  return fmt::format("{} {}", digits, kNames[unit]);
}

}  // namespace haul
