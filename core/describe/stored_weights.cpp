#include "core/describe/stored_weights.h"

#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

namespace haul::core {
namespace {

class StoredNames {
 public:
  StoredNames(std::span<const HeaderTensor> tensors, std::string_view base_prefix)
      : prefix_(std::string(base_prefix) + ".") {
    for (std::size_t i = 0; i < tensors.size(); ++i) by_name_.emplace(tensors[i].name, i);
  }

  std::optional<std::size_t> find(std::string_view name) const {
    if (const auto found = exactly(name)) return found;
    if (name.starts_with(prefix_)) return exactly(name.substr(prefix_.size()));
    return exactly(prefix_ + std::string(name));
  }

 private:
  std::optional<std::size_t> exactly(std::string_view name) const {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return std::nullopt;
    return found->second;
  }

  std::string prefix_;
  std::unordered_map<std::string_view, std::size_t> by_name_;
};

void set_dtypes(const StoredNames& names, std::span<const HeaderTensor> tensors,
                const std::string& path, ModuleSpec* module) {
  for (ParameterSpec& parameter : module->parameters) {
    if (const auto index = names.find(path + parameter.name)) {
      parameter.dtype = tensors[*index].dtype;
    }
  }
  for (BufferSpec& buffer : module->buffers) {
    if (!buffer.persistent) continue;
    if (const auto index = names.find(path + buffer.name)) buffer.dtype = tensors[*index].dtype;
  }
  for (ModuleSpec& child : module->children) {
    set_dtypes(names, tensors, path + child.name + ".", &child);
  }
}

}  // namespace

void untie_stored(std::span<const HeaderTensor> tensors, const SameWeights& same,
                  std::string_view base_prefix, Description* description) {
  if (description->tied.empty()) return;
  const StoredNames names(tensors, base_prefix);
  std::vector<std::vector<std::string>> kept;
  for (std::vector<std::string>& group : description->tied) {
    const auto source = names.find(group.front());
    std::vector<std::string> tied;
    for (std::string& name : group) {
      const auto index = names.find(name);
      const bool own = source && index && *source != *index && !same(*source, *index);
      if (!own) tied.push_back(std::move(name));
    }
    if (tied.size() > 1) kept.push_back(std::move(tied));
  }
  description->tied = std::move(kept);
}

void set_stored_dtypes(std::span<const HeaderTensor> tensors, std::string_view base_prefix,
                       Description* description) {
  set_dtypes(StoredNames(tensors, base_prefix), tensors, "", &description->root);
}

void set_dtype(Dtype dtype, ModuleSpec* module) {
  for (ParameterSpec& parameter : module->parameters) {
    if (is_float(parameter.dtype)) parameter.dtype = dtype;
  }
  for (BufferSpec& buffer : module->buffers) {
    if (buffer.persistent && is_float(buffer.dtype)) buffer.dtype = dtype;
  }
  for (ModuleSpec& child : module->children) set_dtype(dtype, &child);
}

}  // namespace haul::core
