#include "runtime/dispatch/model_tensors.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include "haul/error.h"

namespace haul::runtime {
namespace {

constexpr std::array kTypes = {
    std::pair{Dtype::kBool, c10::kBool},
    std::pair{Dtype::kU8, c10::kByte},
    std::pair{Dtype::kI8, c10::kChar},
    std::pair{Dtype::kU16, c10::kUInt16},
    std::pair{Dtype::kI16, c10::kShort},
    std::pair{Dtype::kU32, c10::kUInt32},
    std::pair{Dtype::kI32, c10::kInt},
    std::pair{Dtype::kU64, c10::kUInt64},
    std::pair{Dtype::kI64, c10::kLong},
    std::pair{Dtype::kF8E5M2, c10::kFloat8_e5m2},
    std::pair{Dtype::kF8E4M3, c10::kFloat8_e4m3fn},
    std::pair{Dtype::kF8E8M0, c10::kFloat8_e8m0fnu},
    std::pair{Dtype::kF8E4M3FNUZ, c10::kFloat8_e4m3fnuz},
    std::pair{Dtype::kF8E5M2FNUZ, c10::kFloat8_e5m2fnuz},
    std::pair{Dtype::kF16, c10::kHalf},
    std::pair{Dtype::kBF16, c10::kBFloat16},
    std::pair{Dtype::kF32, c10::kFloat},
    std::pair{Dtype::kF64, c10::kDouble},
    std::pair{Dtype::kC64, c10::kComplexFloat},
};

// "ns::BlockImpl" and "ns::BlockImpl<4>" are a Block.
std::string class_name(std::string name) {
  name = name.substr(0, name.find('<'));
  if (const auto colon = name.rfind("::"); colon != std::string::npos)
    name = name.substr(colon + 2);
  if (const auto dot = name.rfind('.'); dot != std::string::npos) name = name.substr(dot + 1);
  constexpr std::string_view kImpl = "Impl";
  if (name.size() > kImpl.size() && name.ends_with(kImpl)) name.resize(name.size() - kImpl.size());
  return name;
}

Shape shape_of(const at::Tensor& tensor) {
  return tensor.sizes().vec();
}

class Reader {
 public:
  ModelTensors result;

  void parameter(const std::string& path, const std::string& name, const at::Tensor& tensor,
                 ModuleSpec* module) {
    if (!tensor.defined()) return;
    module->parameters.push_back({name, to_dtype(tensor.scalar_type()), shape_of(tensor)});
    add(path + name, tensor, false);
  }
  void buffer(const std::string& path, const std::string& name, const at::Tensor& tensor,
              ModuleSpec* module) {
    if (!tensor.defined()) return;
    module->buffers.push_back({name, to_dtype(tensor.scalar_type()), shape_of(tensor), true});
    add(path + name, tensor, true);
  }

  void read(const torch::nn::Module& from, const std::string& path, ModuleSpec* module) {
    module->class_name = class_name(from.name());
    for (const auto& item : from.named_parameters(false)) {
      parameter(path, item.key(), item.value(), module);
    }
    for (const auto& item : from.named_buffers(false)) {
      buffer(path, item.key(), item.value(), module);
    }
    for (const auto& item : from.named_children()) {
      ModuleSpec& child = module->children.emplace_back();
      child.name = item.key();
      read(*item.value(), path + item.key() + ".", &child);
    }
  }

  void read(const torch::jit::Module& from, const std::string& path, ModuleSpec* module) {
    const auto type_name = from.type()->name();
    module->class_name = type_name ? class_name(type_name->name()) : "Module";
    for (const auto& item : from.named_parameters(false)) {
      parameter(path, item.name, item.value, module);
    }
    for (const auto& item : from.named_buffers(false)) {
      buffer(path, item.name, item.value, module);
    }
    for (const auto& item : from.named_children()) {
      ModuleSpec& child = module->children.emplace_back();
      child.name = item.name;
      read(item.value, path + item.name + ".", &child);
    }
  }

  void find_ties() {
    // Empty tensors have no memory to share: they are tied when they are one object.
    using Key = std::tuple<const void*, std::int64_t, std::vector<std::int64_t>>;
    std::map<Key, std::vector<std::string>> groups;
    std::vector<Key> order;
    for (const ModelTensor& item : result.all) {
      const at::Tensor& tensor = item.tensor;
      const bool memory = tensor.has_storage() && tensor.storage().data() != nullptr;
      Key key = memory ? Key{tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset(),
                             tensor.sizes().vec()}
                       : Key{tensor.unsafeGetTensorImpl(), 0, {}};
      std::vector<std::string>& names = groups[key];
      if (names.empty()) order.push_back(key);
      names.push_back(item.name);
    }
    for (const Key& key : order) {
      if (groups[key].size() > 1) result.description.tied.push_back(groups[key]);
    }
  }

 private:
  void add(std::string name, const at::Tensor& tensor, bool is_buffer) {
    result.all.push_back({std::move(name), tensor, is_buffer});
  }
};

// Names of tensors that are kept.
class Kept {
 public:
  Kept(const Description& description, const std::vector<std::string>& names)
      : names_(names.begin(), names.end()) {
    std::vector<std::string> tied;
    for (const std::vector<std::string>& group : description.tied) {
      if (std::any_of(group.begin(), group.end(),
                      [&](const auto& name) { return (*this)(name); })) {
        tied.insert(tied.end(), group.begin(), group.end());
      }
    }
    names_.insert(tied.begin(), tied.end());
  }

  bool operator()(std::string name) const {
    while (!names_.contains(name)) {
      const std::size_t dot = name.rfind('.');
      if (dot == name.npos) return false;
      name.resize(dot);
    }
    return true;
  }

 private:
  std::unordered_set<std::string> names_;
};

// Whether anything is left.
bool reduce(ModuleSpec* module, const std::string& path, const Kept& kept) {
  const auto other = [&](const auto& tensor) { return !kept(path + tensor.name); };
  std::erase_if(module->parameters, other);
  std::erase_if(module->buffers, other);
  std::erase_if(module->children,
                [&](ModuleSpec& child) { return !reduce(&child, path + child.name + ".", kept); });
  return !module->parameters.empty() || !module->buffers.empty() || !module->children.empty();
}

}  // namespace

Description only(Description description, const std::vector<std::string>& names) {
  if (names.empty()) return description;
  const Kept kept(description, names);
  reduce(&description.root, "", kept);
  std::erase_if(description.tied, [&](const auto& group) { return !kept(group.front()); });
  return description;
}

ModelTensors only(ModelTensors model, const std::vector<std::string>& names) {
  if (names.empty()) return model;
  const Kept kept(model.description, names);
  std::erase_if(model.all, [&](const ModelTensor& item) { return !kept(item.name); });
  model.description = only(std::move(model.description), names);
  return model;
}

Dtype to_dtype(c10::ScalarType type) {
  for (const auto& [dtype, scalar] : kTypes) {
    if (scalar == type) return dtype;
  }
  throw Error(ErrorKind::kUnsupported,
              fmt::format("haul has no name for the dtype {}", c10::toString(type)));
}

c10::ScalarType to_scalar_type(Dtype dtype) {
  for (const auto& [known, scalar] : kTypes) {
    if (known == dtype) return scalar;
  }
  throw Error(ErrorKind::kUnsupported, fmt::format("torch has no dtype {}", name(dtype)));
}

ModelTensors read_model(const ModelRef& model) {
  Reader reader;
  ModuleSpec* root = &reader.result.description.root;
  if (model.module() != nullptr) {
    reader.read(*model.module(), "", root);
  } else {
    reader.read(*model.script(), "", root);
  }
  reader.find_ties();
  return std::move(reader.result);
}

}  // namespace haul::runtime
