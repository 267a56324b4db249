#include "core/formats/torch_tensor.h"

#include <string>

#include <fmt/format.h>

#include "core/base/quote.h"
#include "core/formats/tensor_size.h"
#include "haul/error.h"

namespace haul::core {
namespace {

constexpr std::size_t kMaxDimensions = 64;  // torch's own limit
constexpr int kMaxWrappers = 8;

[[noreturn]] void corrupt(std::string message) {
  throw Error(ErrorKind::kCorrupt, std::move(message));
}

[[noreturn]] void unsupported(std::string message, std::string hint = {}) {
  throw Error(ErrorKind::kUnsupported, std::move(message), std::move(hint));
}

bool is_contiguous(const Shape& shape, const std::vector<std::int64_t>& strides) {
  std::int64_t expected = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 1) continue;
    if (strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

Dtype element_type(const TorchGlobal& type) {
  if (!type.dtype) unsupported(fmt::format("elements of type {} cannot be read", type.what));
  return *type.dtype;
}

}  // namespace

const TorchGlobal* TorchTensors::global(Pickle::Id id) const {
  if (pickle_.kind(id) == PickleKind::kCall) id = pickle_.items(id)[0];
  return pickle_.kind(id) == PickleKind::kGlobal ? &torch_global(pickle_.global(id)) : nullptr;
}

bool TorchTensors::is_tensor(Pickle::Id id) const {
  if (pickle_.kind(id) != PickleKind::kCall) return false;
  switch (global(id)->role) {
    case TorchRole::kTensor:
    case TorchRole::kParameter:
    case TorchRole::kFromType:
    case TorchRole::kOtherTensor:
    case TorchRole::kTensorType:
      return true;
    default:
      return false;
  }
}

StoredTensor TorchTensors::read(Pickle::Id id) const {
  for (int i = 0; i < kMaxWrappers; ++i) {
    if (!is_tensor(id)) corrupt("there is no tensor in its wrapper");
    if (pickle_.has_state(id) || pickle_.items(id).size() != 2) {
      corrupt("it is changed after it was built");
    }
    const TorchGlobal& function = *global(id);
    const Pickle::Id arguments = pickle_.items(id)[1];
    const auto values = pickle_.items(arguments);
    if (function.role == TorchRole::kTensor) return read_dense(function.name, arguments);
    if (function.role == TorchRole::kOtherTensor) {
      unsupported(fmt::format("it is {}, and only dense tensors can be read", function.what),
                  "make it dense in torch and save it again");
    }
    if (function.role == TorchRole::kParameter && !values.empty()) {
      id = values[0];
      continue;
    }
    // _rebuild_from_type_v2(function, type, arguments, state): a tensor with Python attributes.
    if (function.role == TorchRole::kFromType && values.size() == 4 &&
        pickle_.kind(values[0]) == PickleKind::kGlobal &&
        pickle_.kind(values[2]) == PickleKind::kTuple) {
      const TorchGlobal& inner = *global(values[0]);
      if (inner.role == TorchRole::kTensor) return read_dense(inner.name, values[2]);
      if (inner.role == TorchRole::kOtherTensor) {
        unsupported(fmt::format("it is {}, and only dense tensors can be read", inner.what),
                    "make it dense in torch and save it again");
      }
    }
    unsupported(fmt::format("{} is called in a way that torch.save does not write", function.name));
  }
  corrupt("too many wrappers around it");
}

StoredTensor TorchTensors::read_dense(std::string_view function, Pickle::Id arguments) const {
  // (storage, offset, size, stride), v2 adds requires_grad, hooks and maybe metadata, v3 puts the
  // dtype of an untyped storage before the metadata.
  const auto values = pickle_.items(arguments);
  const bool has_dtype = function.ends_with("_v3");
  const std::size_t metadata = has_dtype ? 7 : 6;
  if (values.size() < (has_dtype ? 7 : 4)) {
    corrupt(fmt::format("{} is called with {} arguments", function, values.size()));
  }
  const Storage storage = read_storage(values[0]);
  const std::int64_t first = read_integer(values[1], "its offset");
  StoredTensor tensor;
  tensor.shape = read_integers(values[2], "its size");
  tensor.strides = read_integers(values[3], "its stride");
  if (values.size() > metadata) check_metadata(values[metadata]);
  if (has_dtype) {
    const TorchGlobal* type = global(values[6]);
    if (type == nullptr || type->role != TorchRole::kDtype) corrupt("its dtype is none");
    tensor.dtype = element_type(*type);
  } else if (storage.dtype) {
    tensor.dtype = *storage.dtype;
  } else {
    corrupt("its storage has no element type");
  }

  // torch counts pairs of F4 elements, one a byte; safetensors and haul count the elements.
  const bool pairs = tensor.dtype == Dtype::kF4;
  const Dtype unit = pairs ? Dtype::kU8 : tensor.dtype;
  const auto span = checked_span(unit, tensor.shape, tensor.strides);
  if (!span || !checked_size(unit, tensor.shape)) {
    corrupt(fmt::format("size [{}] with stride [{}] is not one of a tensor",
                        fmt::join(tensor.shape, ", "), fmt::join(tensor.strides, ", ")));
  }
  const auto element = static_cast<Bytes>(bits(unit) / 8);
  Bytes begin = 0;
  Bytes end = 0;
  if (first < 0 || __builtin_mul_overflow(static_cast<Bytes>(first), element, &begin) ||
      __builtin_add_overflow(begin, *span, &end) || (*span != 0 && end > storage.entry->size)) {
    corrupt(
        fmt::format("size [{}] with stride [{}] from element {} leaves its storage {} of {} "
                    "bytes",
                    fmt::join(tensor.shape, ", "), fmt::join(tensor.strides, ", "), first,
                    quote(storage.entry->name), storage.entry->size));
  }
  tensor.offset = storage.entry->offset + (*span == 0 ? 0 : begin);
  tensor.size = *span;
  if (*span == 0 || is_contiguous(tensor.shape, tensor.strides)) tensor.strides.clear();
  if (pairs) {
    if (tensor.shape.empty() || !tensor.strides.empty()) {
      unsupported("it is a strided view of 4-bit elements",
                  "make it contiguous in torch and save it again");
    }
    if (__builtin_mul_overflow(tensor.shape.back(), std::int64_t{2}, &tensor.shape.back())) {
      corrupt("its size is out of range");
    }
  }
  return tensor;
}

TorchTensors::Storage TorchTensors::read_storage(Pickle::Id id) const {
  if (pickle_.kind(id) != PickleKind::kPersistent) corrupt("its first argument is no storage");
  // ("storage", class, key, location, count of elements)
  const auto values = pickle_.items(pickle_.items(id)[0]);
  if (values.size() != 5 || pickle_.text(values[0]) != "storage" ||
      pickle_.kind(values[1]) != PickleKind::kGlobal ||
      pickle_.kind(values[2]) != PickleKind::kString) {
    corrupt("its storage is not described as torch does it");
  }
  const TorchGlobal& type = *global(values[1]);
  if (type.role != TorchRole::kStorage) corrupt(fmt::format("{} is no storage", type.name));
  Storage storage;
  if (type.dtype || !type.what.empty()) storage.dtype = element_type(type);
  const std::int64_t count = read_integer(values[4], "its storage's size");
  const Bytes element = storage.dtype ? static_cast<Bytes>(bits(*storage.dtype) / 8) : 1;
  const std::string name = std::string(folder_).append("data/").append(pickle_.text(values[2]));
  storage.entry = archive_.find(name);
  if (storage.entry == nullptr) {
    corrupt(fmt::format("its storage {} is not in the archive", quote(name)));
  }
  const Bytes available = archive_.stored(*storage.entry).size();
  Bytes needed = 0;
  if (count < 0 || __builtin_mul_overflow(static_cast<Bytes>(count), element, &needed) ||
      needed != available) {
    corrupt(fmt::format("its storage {} should hold {} elements of {} bytes, and has {} bytes",
                        quote(name), count, element, available));
  }
  return storage;
}

std::int64_t TorchTensors::read_integer(Pickle::Id id, std::string_view what) const {
  if (pickle_.kind(id) != PickleKind::kInt) {
    corrupt(fmt::format("{} is no integer of 64 bits", what));
  }
  return pickle_.integer(id);
}

std::vector<std::int64_t> TorchTensors::read_integers(Pickle::Id id, std::string_view what) const {
  // A torch.Size stands for the tuple that it is made of.
  if (pickle_.kind(id) == PickleKind::kCall && global(id)->name == "torch.Size") {
    const auto arguments = pickle_.items(pickle_.items(id)[1]);
    if (arguments.size() == 1) id = arguments[0];
  }
  if (pickle_.kind(id) != PickleKind::kTuple) corrupt(fmt::format("{} is no tuple", what));
  const auto items = pickle_.items(id);
  if (items.size() > kMaxDimensions) {
    corrupt(fmt::format("{} has {} dimensions, more than torch allows", what, items.size()));
  }
  std::vector<std::int64_t> result;
  for (const Pickle::Id item : items) result.push_back(read_integer(item, what));
  return result;
}

void TorchTensors::check_metadata(Pickle::Id id) const {
  const auto items = pickle_.items(id);
  for (std::size_t i = 0; pickle_.kind(id) == PickleKind::kDict && i + 1 < items.size(); i += 2) {
    const std::string_view key = pickle_.text(items[i]);
    const bool lazy = key == "conj" || key == "neg";
    if (lazy && pickle_.kind(items[i + 1]) == PickleKind::kBool && pickle_.integer(items[i + 1])) {
      unsupported("it is a view whose values are yet to be conjugated or negated",
                  "call resolve_conj() and resolve_neg() on it in torch and save it again");
    }
  }
}

}  // namespace haul::core
