#include "haul/error.h"

#include <utility>

namespace haul {
namespace {

// Names from a file may hold anything; a message is one line that no terminal obeys.
std::string printable(std::string text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  std::string result;
  for (const char c : text) {
    if (!control(c)) {
      result += c;
    } else {
      result += "\\x";
      result += kDigits[static_cast<unsigned char>(c) >> 4];
      result += kDigits[c & 0xf];
    }
  }
  return result;
}

}  // namespace

Error::Error(ErrorKind kind, std::string message, std::string hint)
    : kind_(kind), message_(printable(std::move(message))), hint_(std::move(hint)) {}

void Error::add_context(std::string_view where) {
  message_.insert(0, printable(std::string(where)) + ": ");
}

}  // namespace haul
