#include "haul/dtype.h"

#include <array>

namespace haul {
namespace {

struct Row {
  std::string_view name;
  std::string_view torch_name;
  int bits;
  bool is_float;
};

constexpr std::array<Row, kDtypeCount> kRows{{
    {"BOOL", "bool", 8, false},
    {"U8", "uint8", 8, false},
    {"I8", "int8", 8, false},
    {"U16", "uint16", 16, false},
    {"I16", "int16", 16, false},
    {"U32", "uint32", 32, false},
    {"I32", "int32", 32, false},
    {"U64", "uint64", 64, false},
    {"I64", "int64", 64, false},
    {"F4", "", 4, true},
    {"F6_E2M3", "", 6, true},
    {"F6_E3M2", "", 6, true},
    {"F8_E5M2", "float8_e5m2", 8, true},
    {"F8_E4M3", "float8_e4m3fn", 8, true},
    {"F8_E8M0", "float8_e8m0fnu", 8, true},
    {"F8_E4M3FNUZ", "float8_e4m3fnuz", 8, true},
    {"F8_E5M2FNUZ", "float8_e5m2fnuz", 8, true},
    {"F16", "float16", 16, true},
    {"BF16", "bfloat16", 16, true},
    {"F32", "float32", 32, true},
    {"F64", "float64", 64, true},
    {"C64", "complex64", 64, false},
}};

const Row& row(Dtype dtype) {
  return kRows[static_cast<std::size_t>(dtype)];
}

}  // namespace

int bits(Dtype dtype) {
  return row(dtype).bits;
}

bool is_float(Dtype dtype) {
  return row(dtype).is_float;
}

std::string_view name(Dtype dtype) {
  return row(dtype).name;
}

std::string_view torch_name(Dtype dtype) {
  return row(dtype).torch_name;
}

std::optional<Dtype> dtype_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].name == name) return static_cast<Dtype>(i);
  }
  return std::nullopt;
}

std::optional<Dtype> dtype_from_torch_name(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (!name.empty() && kRows[i].torch_name == name) return static_cast<Dtype>(i);
  }
  return std::nullopt;
}

}  // namespace haul
