#include "haul/module_sizes.h"

#include <algorithm>
#include <unordered_set>

#include <fmt/format.h>

#include "haul/error.h"

namespace haul {
namespace {

constexpr Bits kMaxBits = Bits{1} << 63;

bool is_converted(Dtype dtype) {
  return is_float(dtype) || dtype == Dtype::kC64;
}

}  // namespace

int counted_bits(Dtype dtype) {
  return dtype == Dtype::kBool ? 1 : bits(dtype);
}

std::optional<int> counted_bits(std::string_view dtype_name) {
  if (dtype_name == "int2") return 2;
  if (dtype_name == "int4") return 4;
  if (dtype_name == "fp8") return 8;
  const auto dtype = dtype_from_torch_name(dtype_name);
  if (!dtype) return std::nullopt;
  return counted_bits(*dtype);
}

std::string ModuleSizes::name(Index index) const {
  if (index == kRoot) return {};
  const Node& node = nodes_[index];
  if (node.parent == kRoot) return *node.segment;
  return name(node.parent) + "." + *node.segment;
}

std::optional<ModuleSizes::Index> ModuleSizes::find(std::string_view full_name) const {
  Index at = kRoot;
  while (!full_name.empty()) {
    const std::size_t dot = std::min(full_name.find('.'), full_name.size());
    const std::string_view segment = full_name.substr(0, dot);
    Index child = first_child(at);
    while (child != nodes_[at].end && *nodes_[child].segment != segment) child = next(child);
    if (child == nodes_[at].end) return std::nullopt;
    at = child;
    full_name.remove_prefix(std::min(dot + 1, full_name.size()));
  }
  return at;
}

class ModuleSizesBuilder {
 public:
  ModuleSizesBuilder(const Description& description, const SizeOptions& options)
      : options_(options) {
    for (const auto& group : description.tied) {
      for (const std::string& name : group) tie_[name] = &group;
    }
    needs_names_ = !tie_.empty() || !options_.special_bits.empty();
  }

  ModuleSizes build(const ModuleSpec& root) {
    add_module(root, ModuleSizes::kRoot);
    auto& nodes = result_.nodes_;
    for (std::size_t i = nodes.size() - 1; i > 0; --i) {
      Bits& sum = nodes[nodes[i].parent].bits;
      sum += nodes[i].bits;
      if (sum >= kMaxBits) refuse(nodes[i].segment);
    }
    return std::move(result_);
  }

 private:
  void add_module(const ModuleSpec& module, ModuleSizes::Index parent) {
    const auto self = next_index();
    result_.nodes_.push_back(
        {&module.name, &module, nullptr, 0, 0, parent, self, ModuleSizes::Kind::kModule, {}});
    for (const ParameterSpec& p : module.parameters) {
      add_tensor(p, !options_.buffers_only, self, ModuleSizes::Kind::kParameter);
    }
    for (const BufferSpec& b : module.buffers) {
      add_tensor(b, true, self, ModuleSizes::Kind::kBuffer);
    }
    for (const ModuleSpec& child : module.children) {
      const std::size_t length = path_.size();
      if (needs_names_) path_ += child.name + ".";
      add_module(child, self);
      path_.resize(length);
    }
    result_.nodes_[self].end = next_index();
  }

  template <typename Spec>
  void add_tensor(const Spec& spec, bool counted, ModuleSizes::Index parent,
                  ModuleSizes::Kind kind) {
    const std::uint64_t elements = element_count(spec.shape);
    const Bits bits = counted ? tensor_bits(spec.name, spec.dtype, elements) : 0;
    result_.nodes_.push_back({&spec.name, nullptr, &spec.shape, elements, bits, parent,
                              next_index() + 1, kind, spec.dtype});
  }

  ModuleSizes::Index next_index() const {
    return static_cast<ModuleSizes::Index>(result_.nodes_.size());
  }

  Bits tensor_bits(const std::string& segment, Dtype dtype, std::uint64_t elements) {
    int each = counted_bits(dtype);
    if (options_.dtype_bits && is_converted(dtype)) each = std::min(each, *options_.dtype_bits);
    if (needs_names_) {
      const std::string name = path_ + segment;
      const auto tie = tie_.find(name);
      if (tie != tie_.end() && !counted_groups_.insert(tie->second).second) return 0;
      const auto special = options_.special_bits.find(name);
      if (special != options_.special_bits.end()) each = special->second;
    }
    if (elements >= kMaxBits / 64) refuse(&segment);
    return elements * static_cast<Bits>(each);
  }

  [[noreturn]] static void refuse(const std::string* segment) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("'{}': the model's size does not fit in 63 bits", *segment));
  }

  const SizeOptions& options_;
  using Group = std::vector<std::string>;
  std::unordered_map<std::string_view, const Group*> tie_;
  std::unordered_set<const Group*> counted_groups_;
  bool needs_names_ = false;
  std::string path_;  // of the module being added, with a dot at its end
  ModuleSizes result_;
};

ModuleSizes compute_module_sizes(const Description& description, const SizeOptions& options) {
  return ModuleSizesBuilder(description, options).build(description.root);
}

LargestLayer get_max_layer_size(const ModuleSizes& sizes, std::span<const ModuleSizes::Index> queue,
                                std::span<const std::string> no_split) {
  const std::unordered_set<std::string_view> whole(no_split.begin(), no_split.end());
  Bits largest = 0;
  std::vector<ModuleSizes::Index> layers;
  for (const ModuleSizes::Index start : queue) {
    const ModuleSizes::Index end = sizes[start].end;
    for (ModuleSizes::Index i = start; i != end;) {
      const ModuleSizes::Node& node = sizes[i];
      const bool tensor_below = node.module == nullptr && i != start;
      const bool is_layer = node.module == nullptr || node.module->children.empty() ||
                            whole.contains(node.module->class_name);
      i = is_layer ? node.end : i + 1;
      if (tensor_below || !is_layer || node.bits < largest) continue;
      if (node.bits > largest) layers.clear();
      largest = node.bits;
      layers.push_back(static_cast<ModuleSizes::Index>(&node - sizes.nodes().data()));
    }
  }
  LargestLayer result{largest, {}};
  result.names.reserve(layers.size());
  for (const ModuleSizes::Index layer : layers) result.names.push_back(sizes.name(layer));
  return result;
}

MaximumSizes calculate_maximum_sizes(const Description& description) {
  const ModuleSizes sizes = compute_module_sizes(description);
  std::vector<ModuleSizes::Index> queue;
  for (const auto kind :
       {ModuleSizes::Kind::kParameter, ModuleSizes::Kind::kModule, ModuleSizes::Kind::kBuffer}) {
    for (auto i = ModuleSizes::first_child(ModuleSizes::kRoot); i != sizes[0].end;
         i = sizes.next(i)) {
      if (sizes[i].kind == kind) queue.push_back(i);
    }
  }
  return {sizes.total(), get_max_layer_size(sizes, queue, description.no_split)};
}

}  // namespace haul
