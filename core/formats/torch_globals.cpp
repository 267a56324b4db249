#include "core/formats/torch_globals.h"

#include <iterator>

namespace haul::core {
namespace {

using enum TorchRole;

constexpr TorchGlobal kGlobals[] = {
    {"collections.OrderedDict", kDict},
    {"torch._utils._rebuild_tensor", kTensor},
    {"torch._utils._rebuild_tensor_v2", kTensor},
    {"torch._utils._rebuild_tensor_v3", kTensor},
    {"torch._utils._rebuild_parameter", kParameter},
    {"torch._utils._rebuild_parameter_with_state", kParameter},
    {"torch._tensor._rebuild_from_type_v2", kFromType},
    {"torch.Tensor", kTensorType},
    {"torch.nn.parameter.Parameter", kTensorType},
    {"torch._utils._rebuild_sparse_tensor", kOtherTensor, {}, "a sparse tensor"},
    {"torch._utils._rebuild_qtensor", kOtherTensor, {}, "a quantised tensor"},
    {"torch._utils._rebuild_nested_tensor", kOtherTensor, {}, "a nested tensor"},
    {"torch._utils._rebuild_meta_tensor_no_storage",
     kOtherTensor,
     {},
     "a tensor on the meta device, which has no data"},
    {"torch._utils._rebuild_device_tensor_from_cpu_tensor",
     kOtherTensor,
     {},
     "a tensor of another kind of device"},
    {"torch._utils._rebuild_device_tensor_from_numpy",
     kOtherTensor,
     {},
     "a tensor of another kind of device"},
    {"torch._utils._rebuild_wrapper_subclass", kOtherTensor, {}, "a wrapped tensor"},
    {"torch.storage.UntypedStorage", kStorage},
    {"torch.BoolStorage", kStorage, Dtype::kBool},
    {"torch.ByteStorage", kStorage, Dtype::kU8},
    {"torch.CharStorage", kStorage, Dtype::kI8},
    {"torch.ShortStorage", kStorage, Dtype::kI16},
    {"torch.IntStorage", kStorage, Dtype::kI32},
    {"torch.LongStorage", kStorage, Dtype::kI64},
    {"torch.HalfStorage", kStorage, Dtype::kF16},
    {"torch.BFloat16Storage", kStorage, Dtype::kBF16},
    {"torch.FloatStorage", kStorage, Dtype::kF32},
    {"torch.DoubleStorage", kStorage, Dtype::kF64},
    {"torch.ComplexFloatStorage", kStorage, Dtype::kC64},
    {"torch.ComplexDoubleStorage", kStorage, {}, "complex128"},
    {"torch.QInt8Storage", kStorage, {}, "qint8"},
    {"torch.QInt32Storage", kStorage, {}, "qint32"},
    {"torch.QUInt8Storage", kStorage, {}, "quint8"},
    {"torch.QUInt4x2Storage", kStorage, {}, "quint4x2"},
    {"torch.QUInt2x4Storage", kStorage, {}, "quint2x4"},
    {"torch.bool", kDtype, Dtype::kBool},
    {"torch.uint8", kDtype, Dtype::kU8},
    {"torch.int8", kDtype, Dtype::kI8},
    {"torch.uint16", kDtype, Dtype::kU16},
    {"torch.int16", kDtype, Dtype::kI16},
    {"torch.uint32", kDtype, Dtype::kU32},
    {"torch.int32", kDtype, Dtype::kI32},
    {"torch.uint64", kDtype, Dtype::kU64},
    {"torch.int64", kDtype, Dtype::kI64},
    {"torch.float8_e5m2", kDtype, Dtype::kF8E5M2},
    {"torch.float8_e4m3fn", kDtype, Dtype::kF8E4M3},
    {"torch.float8_e8m0fnu", kDtype, Dtype::kF8E8M0},
    {"torch.float8_e4m3fnuz", kDtype, Dtype::kF8E4M3FNUZ},
    {"torch.float8_e5m2fnuz", kDtype, Dtype::kF8E5M2FNUZ},
    {"torch.float16", kDtype, Dtype::kF16},
    {"torch.bfloat16", kDtype, Dtype::kBF16},
    {"torch.float32", kDtype, Dtype::kF32},
    {"torch.float64", kDtype, Dtype::kF64},
    {"torch.complex64", kDtype, Dtype::kC64},
    {"torch.float4_e2m1fn_x2", kDtype, Dtype::kF4},
    {"torch.complex32", kDtype, {}, "complex32"},
    {"torch.complex128", kDtype, {}, "complex128"},
    {"torch.qint8", kDtype, {}, "qint8"},
    {"torch.qint32", kDtype, {}, "qint32"},
    {"torch.quint8", kDtype, {}, "quint8"},
    {"torch.quint4x2", kDtype, {}, "quint4x2"},
    {"torch.quint2x4", kDtype, {}, "quint2x4"},
    {"torch.bits8", kDtype, {}, "bits8"},
    {"torch.bits16", kDtype, {}, "bits16"},
    {"torch.bits1x8", kDtype, {}, "bits1x8"},
    {"torch.bits2x4", kDtype, {}, "bits2x4"},
    {"torch.bits4x2", kDtype, {}, "bits4x2"},
    {"torch.Size"},
    {"torch.device"},
    {"torch.serialization._get_layout"},
    {"torch.per_tensor_affine"},
    {"torch.per_tensor_symmetric"},
    {"torch.per_channel_affine"},
    {"torch.per_channel_symmetric"},
    {"torch.per_channel_affine_float_qparams"},
    {"_codecs.encode"},
    {"builtins.bytearray"},
    {"builtins.complex"},
    {"builtins.set"},
    {"builtins.frozenset"},
    {"__builtin__.bytearray"},
    {"__builtin__.complex"},
    {"__builtin__.set"},
    {"__builtin__.frozenset"},
    {"collections.Counter"},
};

}  // namespace

std::optional<std::uint32_t> find_torch_global(std::string_view name) {
  for (std::uint32_t i = 0; i < std::size(kGlobals); ++i) {
    if (kGlobals[i].name == name) return i;
  }
  return std::nullopt;
}

const TorchGlobal& torch_global(std::uint32_t number) {
  return kGlobals[number];
}

}  // namespace haul::core
