#include "core/formats/ggml_type.h"

#include <algorithm>
#include <array>

namespace haul::core {
namespace {

constexpr GgmlType plain(std::uint32_t id, std::string_view name, std::uint32_t bytes,
                         Dtype dtype) {
  return {id, name, true, 1, bytes, dtype, Coding::kPlain};
}

constexpr GgmlType quantised(std::uint32_t id, std::string_view name, std::uint32_t elements,
                             std::uint32_t bytes, Coding coding) {
  return {id, name, true, elements, bytes, Dtype::kF32, coding};
}

constexpr GgmlType named(std::uint32_t id, std::string_view name) {
  return {.id = id, .name = name};
}

constexpr std::array kTypes = {
    plain(0, "F32", 4, Dtype::kF32),
    plain(1, "F16", 2, Dtype::kF16),
    quantised(2, "Q4_0", 32, 18, Coding::kQ4_0),
    quantised(3, "Q4_1", 32, 20, Coding::kQ4_1),
    named(4, "Q4_2"),
    named(5, "Q4_3"),
    quantised(6, "Q5_0", 32, 22, Coding::kQ5_0),
    quantised(7, "Q5_1", 32, 24, Coding::kQ5_1),
    quantised(8, "Q8_0", 32, 34, Coding::kQ8_0),
    named(9, "Q8_1"),
    quantised(10, "Q2_K", 256, 84, Coding::kQ2_K),
    quantised(11, "Q3_K", 256, 110, Coding::kQ3_K),
    quantised(12, "Q4_K", 256, 144, Coding::kQ4_K),
    quantised(13, "Q5_K", 256, 176, Coding::kQ5_K),
    quantised(14, "Q6_K", 256, 210, Coding::kQ6_K),
    named(15, "Q8_K"),
    named(16, "IQ2_XXS"),
    named(17, "IQ2_XS"),
    named(18, "IQ3_XXS"),
    named(19, "IQ1_S"),
    named(20, "IQ4_NL"),
    named(21, "IQ3_S"),
    named(22, "IQ2_S"),
    named(23, "IQ4_XS"),
    plain(24, "I8", 1, Dtype::kI8),
    plain(25, "I16", 2, Dtype::kI16),
    plain(26, "I32", 4, Dtype::kI32),
    plain(27, "I64", 8, Dtype::kI64),
    plain(28, "F64", 8, Dtype::kF64),
    named(29, "IQ1_M"),
    plain(30, "BF16", 2, Dtype::kBF16),
    named(31, "Q4_0_4_4"),
    named(32, "Q4_0_4_8"),
    named(33, "Q4_0_8_8"),
    named(34, "TQ1_0"),
    named(35, "TQ2_0"),
    named(36, "IQ4_NL_4_4"),
    named(37, "IQ4_NL_4_8"),
    named(38, "IQ4_NL_8_8"),
    named(39, "MXFP4"),
    named(40, "NVFP4"),
    named(41, "Q1_0"),
};

}  // namespace

const GgmlType* find_ggml_type(std::uint32_t id) {
  return id < kTypes.size() ? &kTypes[id] : nullptr;
}

const GgmlType& ggml_type(Coding coding) {
  return *std::find_if(kTypes.begin(), kTypes.end(),
                       [coding](const GgmlType& type) { return type.coding == coding; });
}

}  // namespace haul::core
