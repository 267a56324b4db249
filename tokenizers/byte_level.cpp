#include "tokenizers/byte_level.h"

#include "tokenizers/utf8.h"

namespace haul::tokenizers {
namespace {

constexpr char32_t kSpare = 0x100;
constexpr std::size_t kPoints = 0x180;

bool is_printable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
}

}  // namespace

const std::array<char32_t, 256>& byte_to_point() {
  static const std::array<char32_t, 256> table = [] {
    std::array<char32_t, 256> points{};
    char32_t spare = kSpare;
    for (int byte = 0; byte < 256; ++byte) {
      points[static_cast<std::size_t>(byte)] =
          is_printable(byte) ? static_cast<char32_t>(byte) : spare++;
    }
    return points;
  }();
  return table;
}

std::optional<unsigned char> point_to_byte(char32_t point) {
  static const std::array<int, kPoints> table = [] {
    std::array<int, kPoints> bytes{};
    bytes.fill(-1);
    for (int byte = 0; byte < 256; ++byte) {
      bytes[byte_to_point()[static_cast<std::size_t>(byte)]] = byte;
    }
    return bytes;
  }();
  if (point >= kPoints || table[point] < 0) return std::nullopt;
  return static_cast<unsigned char>(table[point]);
}

void append_byte_level(std::string_view bytes, std::string& out) {
  const auto& points = byte_to_point();
  for (const char byte : bytes) append_utf8(out, points[static_cast<unsigned char>(byte)]);
}

}  // namespace haul::tokenizers
