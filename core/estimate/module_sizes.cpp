#include "haul/module_sizes.h"

#include <algorithm>
#include <array>
#include <unordered_set>

#include <fmt/format.h>

#include "haul/error.h"

namespace haul {
namespace {

constexpr Bits kMaxBits = Bits{1} << 63;

bool is_converted(Dtype dtype) {
  return is_float(dtype) || dtype == Dtype::kC64;
}

// Of a module, its tensors and all below.
std::size_t node_count(const ModuleSpec& module) {
  std::size_t count = 1 + module.parameters.size() + module.buffers.size();
  for (const ModuleSpec& child : module.children) count += node_count(child);
  return count;
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
    for (std::size_t i = 0; i < each_.size(); ++i) {
      const auto dtype = static_cast<Dtype>(i);
      each_[i] = counted_bits(dtype);
      if (options.dtype_bits && is_converted(dtype)) {
        each_[i] = std::min(each_[i], *options.dtype_bits);
      }
    }
    for (const auto& group : description.tied) {
      for (const std::string& name : group) tie_[name] = &group;
    }
    needs_names_ = !tie_.empty() || !options_.special_bits.empty();
  }

  ModuleSizes build(const ModuleSpec& root) {
    result_.nodes_.resize(node_count(root));
    add_modules({&root, 1}, ModuleSizes::kRoot, 0);
    return std::move(result_);
  }

 private:
  // Modules beside each other, behind tensors of their parent with `sum` bits; returns the bits of
  // all. A call for a row of modules, and not for each: most have none below.
  Bits add_modules(std::span<const ModuleSpec> modules, ModuleSizes::Index parent, Bits sum) {
    for (const ModuleSpec& module : modules) {
      const ModuleSizes::Index self = next_++;
      const std::size_t length = path_.size();
      if (needs_names_ && self != ModuleSizes::kRoot) path_ += module.name + ".";
      Bits bits = 0;
      for (const ParameterSpec& p : module.parameters) {
        bits += add_tensor(p, !options_.buffers_only, self, ModuleSizes::Kind::kParameter);
        check(bits, p.name);
      }
      for (const BufferSpec& b : module.buffers) {
        bits += add_tensor(b, true, self, ModuleSizes::Kind::kBuffer);
        check(bits, b.name);
      }
      const bool divisible = !module.children.empty();
      if (divisible) bits = add_modules(module.children, self, bits);
      if (needs_names_) path_.resize(length);
      ModuleSizes::Node& node = result_.nodes_[self];
      node.segment = &module.name;
      node.module = &module;
      node.bits = bits;
      node.parent = parent;
      node.end = next_;
      node.divisible = divisible;
      sum += bits;
      check(sum, module.name);
    }
    return sum;
  }

  template <typename Spec>
  Bits add_tensor(const Spec& spec, bool counted, ModuleSizes::Index parent,
                  ModuleSizes::Kind kind) {
    const std::uint64_t elements = element_count(spec.shape);
    Bits bits = 0;
    if (counted) {
      const int each = needs_names_ ? bits_by_name(spec.name, spec.dtype) : bits_of(spec.dtype);
      if (elements >= kMaxBits / 64 && each > 0) refuse(&spec.name);
      bits = elements * static_cast<Bits>(each);
    }
    ModuleSizes::Node& node = result_.nodes_[next_++];
    node = {&spec.name, nullptr, &spec.shape, elements,   bits,
            parent,     next_,   kind,        spec.dtype, false};
    return bits;
  }

  int bits_of(Dtype dtype) const { return each_[static_cast<std::size_t>(dtype)]; }

  // 0 for one that is counted under another name.
  int bits_by_name(const std::string& segment, Dtype dtype) {
    const std::string name = path_ + segment;
    const auto tie = tie_.find(name);
    if (tie != tie_.end() && !counted_groups_.insert(tie->second).second) return 0;
    const auto special = options_.special_bits.find(name);
    return special != options_.special_bits.end() ? special->second : bits_of(dtype);
  }

  static void check(Bits sum, const std::string& segment) {
    if (sum >= kMaxBits) refuse(&segment);
  }

  [[noreturn]] static void refuse(const std::string* segment) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("'{}': the model's size does not fit in 63 bits", *segment));
  }

  const SizeOptions& options_;
  std::array<int, kDtypeCount> each_;  // bits of an element, by dtype
  using Group = std::vector<std::string>;
  std::unordered_map<std::string_view, const Group*> tie_;
  std::unordered_set<const Group*> counted_groups_;
  bool needs_names_ = false;
  std::string path_;  // of the module being added, with a dot at its end
  ModuleSizes result_;
  ModuleSizes::Index next_ = 0;
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
      const bool is_layer = !node.divisible || whole.contains(node.module->class_name);
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
