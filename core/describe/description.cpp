#include "haul/description.h"

#include <map>

namespace haul {
namespace {

std::string joined(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

void collect_parameters(const ModuleSpec& module, const std::string& path,
                        std::vector<NamedTensor>* out) {
  for (const ParameterSpec& p : module.parameters) {
    out->push_back({joined(path, p.name), p.dtype, p.shape, false, true});
  }
  for (const ModuleSpec& child : module.children) {
    collect_parameters(child, joined(path, child.name), out);
  }
}

void collect_buffers(const ModuleSpec& module, const std::string& path,
                     std::vector<NamedTensor>* out) {
  for (const BufferSpec& b : module.buffers) {
    out->push_back({joined(path, b.name), b.dtype, b.shape, true, b.persistent});
  }
  for (const ModuleSpec& child : module.children) {
    collect_buffers(child, joined(path, child.name), out);
  }
}

}  // namespace

Bytes byte_count(Dtype dtype, const Shape& shape) {
  return (element_count(shape) * static_cast<std::uint64_t>(bits(dtype)) + 7) / 8;
}

std::vector<NamedTensor> all_tensors(const Description& description) {
  std::vector<NamedTensor> result;
  collect_parameters(description.root, "", &result);
  collect_buffers(description.root, "", &result);
  return result;
}

Dtype main_dtype(const Description& description) {
  std::map<Dtype, Bytes> sizes;
  for (const NamedTensor& tensor : all_tensors(description)) {
    if (is_float(tensor.dtype) && bits(tensor.dtype) >= 16) {
      sizes[tensor.dtype] += byte_count(tensor.dtype, tensor.shape);
    }
  }
  Dtype most = Dtype::kBF16;
  for (const auto& [dtype, size] : sizes) {
    if (!sizes.contains(most) || size > sizes[most]) most = dtype;
  }
  return most;
}

}  // namespace haul
