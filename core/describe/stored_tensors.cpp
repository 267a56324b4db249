#include "core/describe/stored_tensors.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "core/describe/gguf_model.h"

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

StoredTensors::StoredTensors(const ModelFiles& files) : remote_(files.remote_tensors) {
  if (files.checkpoint.empty()) return;
  checkpoint_ = Checkpoint::open(files.checkpoint);
  if (checkpoint_->format() == CheckpointFormat::kGguf && GgufModel::knows(*checkpoint_)) {
    const GgufModel model(*checkpoint_);
    config_ = model.config();
    opened_ = transformers_tensors(model, *checkpoint_);
    return;
  }
  opened_.reserve(checkpoint_->tensors().size());
  for (const StoredTensor& tensor : checkpoint_->tensors()) {
    opened_.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
}

std::span<const HeaderTensor> StoredTensors::headers() const {
  return checkpoint_ ? std::span<const HeaderTensor>(opened_) : remote_;
}

bool StoredTensors::same_values(std::size_t a, std::size_t b) const {
  if (!checkpoint_ || checkpoint_->format() == CheckpointFormat::kGguf) return false;
  const StoredTensor& left = checkpoint_->tensors()[a];
  const StoredTensor& right = checkpoint_->tensors()[b];
  const bool alike = left.dtype == right.dtype && left.shape == right.shape &&
                     left.strides == right.strides && left.coding == right.coding;
  if (!alike) return false;
  if (left.file == right.file && left.offset == right.offset) return true;
  const std::span<const std::byte> ours = checkpoint_->bytes(left);
  const std::span<const std::byte> theirs = checkpoint_->bytes(right);
  return std::equal(ours.begin(), ours.end(), theirs.begin(), theirs.end());
}

std::vector<std::string> StoredTensors::notes() const {
  return checkpoint_ ? checkpoint_->notes() : std::vector<std::string>();
}

void untie_stored(const StoredTensors& tensors, std::string_view base_prefix,
                  Description* description) {
  const StoredNames names(tensors.headers(), base_prefix);
  std::vector<std::vector<std::string>> kept;
  for (std::vector<std::string>& group : description->tied) {
    const auto source = names.find(group.front());
    std::vector<std::string> tied;
    for (std::string& name : group) {
      const auto index = names.find(name);
      const bool own =
          source && index && *source != *index && !tensors.same_values(*source, *index);
      if (!own) tied.push_back(std::move(name));
    }
    if (tied.size() > 1) kept.push_back(std::move(tied));
  }
  description->tied = std::move(kept);
}

void set_stored_dtypes(const StoredTensors& tensors, std::string_view base_prefix,
                       Description* description) {
  const std::span<const HeaderTensor> headers = tensors.headers();
  set_dtypes(StoredNames(headers, base_prefix), headers, "", &description->root);
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
