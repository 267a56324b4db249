#pragma once

// The values of GGUF metadata, as views into the file's bytes, which must outlive them. Parsed and
// checked by core/formats/gguf.h; immutable, so any thread may read.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "haul/bytes.h"

namespace haul::core {

// The kinds of metadata values, numbered as in the file.
enum class GgufKind : std::uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};

// Bytes of one scalar; 0 for strings and arrays.
Bytes scalar_bytes(GgufKind kind);

// One metadata value, a view into the file's bytes. The accessors give nothing (or an empty list)
// when the value is of another kind.
struct GgufValue {
  GgufKind kind = GgufKind::kU8;       // of the elements, where it is an array
  bool is_array = false;               // arrays of arrays do not occur
  std::uint64_t count = 1;             // elements
  std::span<const std::byte> payload;  // strings: without the length, unless in an array

  std::optional<std::int64_t> integer() const;  // also of a bool
  std::optional<double> number() const;         // of any integer or float
  std::optional<std::string_view> text() const;
  std::vector<std::int64_t> integers() const;
  std::vector<double> numbers() const;
  // Views into the file: 16 bytes each, whatever the length.
  std::vector<std::string_view> texts() const;
  // Nothing for arrays of more than 64 elements and for strings that are not UTF-8.
  std::optional<Json> json() const;
};

}  // namespace haul::core
