#pragma once

// The size of a model in several dtypes: Accelerate's table by its arithmetic, and beside it what
// the same dtypes take in truth. Pure, any thread.

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "haul/bytes.h"
#include "haul/description.h"
#include "haul/module_sizes.h"

namespace haul {

enum class RowDtype { kFloat32, kFloat16, kBFloat16, kFp8, kInt8, kInt4 };
inline constexpr std::array kRowDtypes{RowDtype::kFloat32, RowDtype::kFloat16, RowDtype::kBFloat16,
                                       RowDtype::kFp8,     RowDtype::kInt8,    RowDtype::kInt4};
std::string_view name(RowDtype dtype);
std::optional<RowDtype> row_dtype_from_name(std::string_view name);

// A row as Accelerate reckons it: every byte of the float32 model divided by 2, 4 or 8, integers
// too. Training is 4 times the float32 bytes, 2 times for the half and 8-bit float types, nothing
// for integers. Bytes may have a fraction.
struct PeerRow {
  RowDtype dtype = RowDtype::kFloat32;
  double largest_layer = 0;
  double total = 0;
  std::optional<double> training_adam;
};
PeerRow peer_row(const MaximumSizes& sizes, RowDtype dtype);

// The same model as it would really lie in memory. Integers and bools keep their size. int8 and
// int4 are what quantised loading gives: only the matrices of linear layers shrink, the output head
// not among them, with one 4-byte scale for each output row (int8) or for 64 weights (int4);
// everything else is held in 16 bits.
struct TrueRow {
  RowDtype dtype = RowDtype::kFloat32;
  Bytes total = 0;
  Bytes unshrunk = 0;  // of the total, what this dtype does not shrink
};
TrueRow true_row(const Description& description, RowDtype dtype);

// Elements of all parameters, each tied one once.
std::uint64_t parameter_count(const Description& description);

}  // namespace haul
