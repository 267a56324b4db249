#include <algorithm>

#include "core/estimate/count.h"
#include "core/estimate/linear_layers.h"
#include "haul/estimate_rows.h"

namespace haul {
namespace {

using core::Count;

bool is_integer(RowDtype dtype) {
  return dtype == RowDtype::kInt8 || dtype == RowDtype::kInt4;
}

double divisor(RowDtype dtype) {
  switch (dtype) {
    case RowDtype::kFloat32:
      return 1;
    case RowDtype::kFloat16:
    case RowDtype::kBFloat16:
      return 2;
    case RowDtype::kFp8:
    case RowDtype::kInt8:
      return 4;
    case RowDtype::kInt4:
      return 8;
  }
  return 1;
}

// Bytes of a linear layer's matrix with its scales.
Count quantised_bytes(const core::OwnedParameter& weight, RowDtype dtype) {
  const Count count = element_count(weight.shape);
  if (dtype == RowDtype::kInt8) return count + Count(4) * core::output_width(weight);
  return (count.value() + 1) / 2 + Count(4) * ((count.value() + 63) / 64);
}

}  // namespace

std::string_view name(RowDtype dtype) {
  switch (dtype) {
    case RowDtype::kFloat32:
      return "float32";
    case RowDtype::kFloat16:
      return "float16";
    case RowDtype::kBFloat16:
      return "bfloat16";
    case RowDtype::kFp8:
      return "fp8";
    case RowDtype::kInt8:
      return "int8";
    case RowDtype::kInt4:
      return "int4";
  }
  return "";
}

std::optional<RowDtype> row_dtype_from_name(std::string_view text) {
  const auto* found = std::find_if(kRowDtypes.begin(), kRowDtypes.end(),
                                   [&](RowDtype dtype) { return name(dtype) == text; });
  if (found == kRowDtypes.end()) return std::nullopt;
  return *found;
}

PeerRow peer_row(const MaximumSizes& sizes, RowDtype dtype) {
  const double total = exact_bytes(sizes.total);
  PeerRow row;
  row.dtype = dtype;
  row.largest_layer = exact_bytes(sizes.largest_layer.bits) / divisor(dtype);
  row.total = total / divisor(dtype);
  if (!is_integer(dtype)) row.training_adam = dtype == RowDtype::kFloat32 ? total * 4 : total * 2;
  return row;
}

TrueRow true_row(const Description& description, RowDtype dtype) {
  const bool quantised = is_integer(dtype);
  const int run_bits = quantised ? 16 : static_cast<int>(32 / divisor(dtype));
  const ModuleSpec* head = core::output_head(description);
  const ModuleSizes sizes = compute_module_sizes(description);
  Count total = 0;
  Count unshrunk = 0;
  for (const ModuleSizes::Node& node : sizes.nodes()) {
    if (node.shape == nullptr || node.bits == 0) continue;
    const Count elements = node.elements;
    const core::OwnedParameter owned{*sizes[node.parent].module, *node.segment, *node.shape, true};
    if (quantised && core::is_inner_linear_weight(owned, head)) {
      total += quantised_bytes(owned, dtype);
      continue;
    }
    const bool shrinks = is_float(node.dtype) && bits(node.dtype) > run_bits;
    const Count bytes = whole_bytes((elements * (shrinks ? run_bits : bits(node.dtype))).value());
    total += bytes;
    if (quantised || !is_float(node.dtype)) unshrunk += bytes;
  }
  return {dtype, total.value(), unshrunk.value()};
}

std::uint64_t parameter_count(const Description& description) {
  Count count = 0;
  core::for_each_parameter(compute_module_sizes(description),
                           [&](const core::OwnedParameter& parameter) {
                             if (parameter.counted) count += element_count(parameter.shape);
                           });
  return count.value();
}

}  // namespace haul
