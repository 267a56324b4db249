#pragma once

// Element types, by the names that safetensors gives them.

#include <cstdint>
#include <optional>
#include <string_view>

namespace haul {

enum class Dtype : std::uint8_t {
  kBool,
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kU64,
  kI64,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3FNUZ,
  kF8E5M2FNUZ,
  kF16,
  kBF16,
  kF32,
  kF64,
  kC64,
};
inline constexpr int kDtypeCount = 22;

// Storage of one element. F4 and F6 are smaller than a byte.
int bits(Dtype dtype);
// Real floating types: F4 to F64. Complex and integers are not.
bool is_float(Dtype dtype);
// "F32", "BF16", "F8_E4M3", …
std::string_view name(Dtype dtype);
// The exact safetensors name, or nothing.
std::optional<Dtype> dtype_from_name(std::string_view name);
// torch's spelling ("float32", "bfloat16", "float8_e4m3fn", …), or nothing. A leading "torch." is
// allowed.
std::optional<Dtype> dtype_from_torch_name(std::string_view name);
// torch's spelling; empty for types that torch lacks.
std::string_view torch_name(Dtype dtype);

}  // namespace haul
