// Any bytes as a GGUF header: parsed or refused, and whatever parses can be read to the end.

#include "core/formats/gguf.h"

#include <cstddef>
#include <cstdint>
#include <span>

#include "haul/error.h"

namespace {

std::uint64_t use(const haul::core::GgufValue& value) {
  std::uint64_t sum = value.count;
  for (const auto text : value.texts()) {
    for (const char c : text) sum += static_cast<unsigned char>(c);
  }
  sum += value.integers().size() + value.numbers().size();
  sum += value.integer().has_value() + value.number().has_value() + value.text().has_value();
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const auto header = haul::core::parse_gguf(bytes, "fuzz");
    std::uint64_t sum = header.json().dump().size();
    for (const auto& entry : header.metadata) sum += use(entry.value);
    for (const auto& tensor : header.tensors) {
      if (tensor.offset > size || tensor.size > size - tensor.offset) __builtin_trap();
      for (const std::byte byte : bytes.subspan(tensor.offset, tensor.size)) {
        sum += static_cast<std::uint64_t>(byte);
      }
    }
    [[maybe_unused]] volatile std::uint64_t kept = sum;
  } catch (const haul::Error&) {
  }
  return 0;
}
