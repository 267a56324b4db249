#include <algorithm>
#include <deque>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "core/describe/describe.h"
#include "core/describe/size_check.h"
#include "haul/error.h"

namespace haul::core {
namespace {

constexpr int kMaxDepth = 64;

struct Node {
  std::string name;
  std::vector<const HeaderTensor*> tensors;
  std::vector<std::size_t> children;
};

// The modules that the names speak of, in the order in which they first appear.
class Tree {
 public:
  explicit Tree(std::string_view source) : source_(source) { nodes_.emplace_back(); }

  void add(const HeaderTensor& tensor) {
    if (!seen_.insert(tensor.name).second) refuse(tensor.name, "is named twice");
    std::size_t node = 0;
    std::size_t begin = 0;
    for (int depth = 0;; ++depth) {
      const std::size_t dot = tensor.name.find('.', begin);
      const std::size_t end = std::min(dot, tensor.name.size());
      if (end == begin) refuse(tensor.name, "has an empty part");
      if (dot == std::string::npos) break;
      if (depth == kMaxDepth) refuse(tensor.name, fmt::format("has over {} parts", kMaxDepth));
      node = child(node, std::string_view(tensor.name).substr(0, end), begin);
      begin = dot + 1;
    }
    nodes_[node].tensors.push_back(&tensor);
  }

  const Node& operator[](std::size_t index) const { return nodes_[index]; }

 private:
  std::size_t child(std::size_t parent, std::string_view path, std::size_t begin) {
    const auto [place, added] = by_path_.try_emplace(path, nodes_.size());
    if (added) {
      nodes_[parent].children.push_back(nodes_.size());
      nodes_.emplace_back();
      nodes_.back().name = path.substr(begin);
    }
    return place->second;
  }

  [[noreturn]] void refuse(std::string_view name, std::string_view why) const {
    throw Error(ErrorKind::kCorrupt,
                fmt::format("{}: the tensor name '{}' {}", source_, name.substr(0, 200), why));
  }

  std::string_view source_;
  std::deque<Node> nodes_;
  std::unordered_map<std::string_view, std::size_t> by_path_;  // views into the tensors' names
  std::unordered_set<std::string_view> seen_;
};

bool is_number(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_list(const Tree& tree, const Node& node) {
  return node.tensors.empty() && !node.children.empty() &&
         std::all_of(node.children.begin(), node.children.end(),
                     [&](std::size_t child) { return is_number(tree[child].name); });
}

bool is_buffer(const HeaderTensor& tensor) {
  const std::string_view path = tensor.name;
  const std::string_view name = path.substr(path.rfind('.') + 1);
  return tensor.dtype == Dtype::kI64 || tensor.dtype == Dtype::kBool || name == "running_mean" ||
         name == "running_var";
}

// Numbers in their order, whatever the order in the file; other names keep theirs.
std::vector<std::size_t> ordered_children(const Tree& tree, const Node& node) {
  std::vector<std::size_t> children = node.children;
  if (is_list(tree, node)) {
    std::stable_sort(children.begin(), children.end(), [&](std::size_t a, std::size_t b) {
      const std::string& left = tree[a].name;
      const std::string& right = tree[b].name;
      return left.size() != right.size() ? left.size() < right.size() : left < right;
    });
  }
  return children;
}

enum class Inside { kNothing, kList, kBlock };

ModuleSpec build(const Tree& tree, std::size_t index, Inside inside) {
  const Node& node = tree[index];
  const bool list = is_list(tree, node);
  ModuleSpec result;
  result.name = node.name;
  if (index == 0) {
    result.class_name = "Model";
  } else if (list) {
    result.class_name = "ModuleList";
  } else if (node.children.empty()) {
    result.class_name = "Layer";
  } else {
    result.class_name = inside == Inside::kList ? "Block" : "Module";
  }
  for (const HeaderTensor* tensor : node.tensors) {
    const std::string name = tensor->name.substr(tensor->name.rfind('.') + 1);
    if (is_buffer(*tensor)) {
      result.buffers.push_back({name, tensor->dtype, tensor->shape, true});
    } else {
      result.parameters.push_back({name, tensor->dtype, tensor->shape});
    }
  }
  // Only the outermost numbered repeats are blocks: a block's own lists may be split no further.
  Inside below = inside == Inside::kNothing ? Inside::kNothing : Inside::kBlock;
  if (inside == Inside::kNothing && list && node.children.size() > 1) below = Inside::kList;
  result.children.reserve(node.children.size());
  for (const std::size_t child : ordered_children(tree, node)) {
    result.children.push_back(build(tree, child, below));
  }
  return result;
}

bool has_block(const ModuleSpec& module) {
  return module.class_name == "Block" ||
         std::any_of(module.children.begin(), module.children.end(), has_block);
}

}  // namespace

Description describe_tensors(std::span<const HeaderTensor> tensors, std::string_view source) {
  Tree tree(source);
  for (const HeaderTensor& tensor : tensors) tree.add(tensor);
  Description result;
  result.root = build(tree, 0, Inside::kNothing);
  if (has_block(result.root)) result.no_split = {"Block"};
  check_sizes(result, source);
  return result;
}

}  // namespace haul::core
