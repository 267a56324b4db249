#include "cli/tree_view.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "core/base/terminal.h"

namespace haul::cli {
namespace {

using core::Style;
using core::styled_stdout;

struct Row {
  int depth = 0;
  std::string name;    // "wte", "0 … 11"
  std::string detail;  // class and count
  std::string tensors;
  Bytes bytes = 0;
};

// Whether two modules differ in nothing but their own names.
bool same_inside(const ModuleSpec& a, const ModuleSpec& b) {
  const auto same_parameter = [](const ParameterSpec& p, const ParameterSpec& q) {
    return p.name == q.name && p.dtype == q.dtype && p.shape == q.shape;
  };
  const auto same_buffer = [](const BufferSpec& p, const BufferSpec& q) {
    return p.name == q.name && p.dtype == q.dtype && p.shape == q.shape &&
           p.persistent == q.persistent;
  };
  const auto same_child = [](const ModuleSpec& p, const ModuleSpec& q) {
    return p.name == q.name && same_inside(p, q);
  };
  return a.class_name == b.class_name &&
         std::equal(a.parameters.begin(), a.parameters.end(), b.parameters.begin(),
                    b.parameters.end(), same_parameter) &&
         std::equal(a.buffers.begin(), a.buffers.end(), b.buffers.begin(), b.buffers.end(),
                    same_buffer) &&
         std::equal(a.children.begin(), a.children.end(), b.children.begin(), b.children.end(),
                    same_child);
}

bool is_number(const std::string& text) {
  return text.find_first_not_of("0123456789") == std::string::npos;
}

class View {
 public:
  explicit View(const Description& description) {
    for (const auto& group : description.tied) {
      for (std::size_t i = 1; i < group.size(); ++i) tied_to_.emplace(group[i], group.front());
    }
    total_ = measure(description.root, "");
    add(description.root, {0, description.root.class_name, "", "", total_}, "");
  }

  std::string text() const {
    std::string result;
    for (const Row& row : rows_) {
      if (!result.empty()) result += '\n';
      result += size_columns(row.bytes);
      result += std::string(static_cast<std::size_t>(2 * row.depth), ' ');
      result += styled_stdout(row.name, Style::kBold);
      if (!row.detail.empty()) result += "  " + styled_stdout(row.detail, Style::kCyan);
      if (!row.tensors.empty()) result += "  " + row.tensors;
    }
    return result;
  }

 private:
  std::string size_columns(Bytes bytes) const {
    if (bytes == 0) return std::string(22, ' ');
    const double share = 100.0 * static_cast<double>(bytes) / static_cast<double>(total_);
    return styled_stdout(fmt::format("{:>10}", format_bytes(bytes)), Style::kGreen) +
           styled_stdout(fmt::format("  {:5.1f} %", share), Style::kDim) + "   ";
  }

  // A name of a tied group after its first is counted nowhere.
  Bytes measure(const ModuleSpec& module, const std::string& prefix) {
    Bytes bytes = 0;
    for (const ParameterSpec& p : module.parameters) {
      if (!tied_to_.contains(prefix + p.name)) bytes += byte_count(p.dtype, p.shape);
    }
    for (const BufferSpec& b : module.buffers) bytes += byte_count(b.dtype, b.shape);
    for (const ModuleSpec& child : module.children) {
      bytes += measure(child, prefix + child.name + ".");
    }
    sizes_.emplace(&module, bytes);
    return bytes;
  }

  void add(const ModuleSpec& module, Row row, const std::string& prefix) {
    row.tensors = tensors(module, prefix);
    const int depth = row.depth + 1;
    rows_.push_back(std::move(row));
    for (std::size_t i = 0; i < module.children.size();) {
      const ModuleSpec& child = module.children[i];
      const std::size_t count = repeats(module, i);
      Row next = {depth, child.name, child.class_name, "", sizes_.at(&child) * count};
      if (count > 1) {
        next.name += fmt::format(" … {}", module.children[i + count - 1].name);
        next.detail += fmt::format(" ({} ×)", count);
      }
      add(child, std::move(next), prefix + child.name + ".");
      i += count;
    }
  }

  // How many numbered children from `first` on are alike.
  std::size_t repeats(const ModuleSpec& module, std::size_t first) const {
    const ModuleSpec& model = module.children[first];
    std::size_t end = first + 1;
    while (is_number(model.name) && end < module.children.size() &&
           is_number(module.children[end].name) &&
           sizes_.at(&module.children[end]) == sizes_.at(&model) &&
           same_inside(model, module.children[end])) {
      ++end;
    }
    return end - first;
  }

  std::string tensors(const ModuleSpec& module, const std::string& prefix) const {
    std::string result;
    const auto add_tensor = [&](const std::string& name, Dtype dtype, const Shape& shape,
                                const std::string& note) {
      if (!result.empty()) result += ", ";
      result += fmt::format("{} {}[", name, haul::name(dtype));
      for (std::size_t i = 0; i < shape.size(); ++i) {
        result += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
      }
      result += "]" + note;
    };
    for (const ParameterSpec& p : module.parameters) {
      const auto tied = tied_to_.find(prefix + p.name);
      add_tensor(p.name, p.dtype, p.shape, tied == tied_to_.end() ? "" : " = " + tied->second);
    }
    for (const BufferSpec& b : module.buffers) {
      add_tensor(b.name, b.dtype, b.shape, b.persistent ? " (buffer)" : " (buffer, not stored)");
    }
    return result;
  }

  std::vector<Row> rows_;
  Bytes total_ = 0;
  std::unordered_map<std::string, std::string> tied_to_;
  std::unordered_map<const ModuleSpec*, Bytes> sizes_;
};

}  // namespace

std::string tree_view(const Description& description) {
  return View(description).text();
}

}  // namespace haul::cli
