#include "haul/torch/move_tensors.h"

#include <algorithm>

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>

namespace haul {

std::optional<c10::Device> device_of_value(const at::Tensor& tensor) {
  if (!tensor.defined()) return std::nullopt;
  return tensor.device();
}

std::optional<c10::Device> device_of_value(const c10::IValue& value) {
  if (value.isTensor()) return device_of_value(value.toTensor());
  if (value.isTuple()) {
    for (const c10::IValue& part : value.toTupleRef().elements()) {
      if (const auto device = device_of_value(part)) return device;
    }
  } else if (value.isList()) {
    for (const c10::IValue& part : value.toListRef()) {
      if (const auto device = device_of_value(part)) return device;
    }
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) {
      if (const auto device = device_of_value(entry.value())) return device;
    }
  }
  return std::nullopt;
}

at::Tensor InputOutput::tensor_moved(const at::Tensor& tensor, c10::Device to) const {
  return tensor.defined() ? tensor.to(to) : tensor;
}

c10::IValue InputOutput::value_moved(const c10::IValue& value, c10::Device to) const {
  if (value.isTensor()) return tensor_moved(value.toTensor(), to);
  if (value.isTuple()) {
    std::vector<c10::IValue> parts;
    for (const c10::IValue& part : value.toTupleRef().elements()) {
      parts.push_back(value_moved(part, to));
    }
    return c10::ivalue::Tuple::create(std::move(parts));
  }
  if (value.isList()) {
    const c10::List<c10::IValue> list = value.toList();
    c10::List<c10::IValue> result(list.elementType());
    for (const c10::IValue& part : value.toListRef()) result.push_back(value_moved(part, to));
    return result;
  }
  if (value.isGenericDict()) {
    const auto dictionary = value.toGenericDict();
    c10::impl::GenericDict result(dictionary.keyType(), dictionary.valueType());
    for (const auto& entry : dictionary) {
      const bool skip =
          entry.key().isString() && std::find(skip_keys_.begin(), skip_keys_.end(),
                                              entry.key().toStringRef()) != skip_keys_.end();
      result.insert(entry.key(), skip ? entry.value() : value_moved(entry.value(), to));
    }
    return result;
  }
  return value;
}

}  // namespace haul
