#include <utility>

#include <fmt/format.h>

#include "core/base/big_json.h"
#include "core/base/json.h"
#include "core/describe/size_check.h"
#include "haul/description.h"
#include "haul/error.h"

namespace haul {
namespace {

using simdjson::dom::element;
using simdjson::dom::object;

constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 56;

class Reader {
 public:
  explicit Reader(std::string_view source) : source_(source) {}

  Description read(element json) {
    Description result;
    result.root = module(json, "");
    result.tied = std::move(tied_);
    result.no_split = std::move(no_split_);
    return result;
  }

 private:
  ModuleSpec module(element json, const std::string& path) {
    ModuleSpec result;
    bool has_class = false;
    for (const auto [key, value] : as_object(json, path, "a module")) {
      if (key == "class") {
        result.class_name = as_string(value, path, "\"class\"");
        has_class = true;
      } else if (key == "parameters") {
        for (const auto [name, spec] : as_object(value, path, "\"parameters\"")) {
          auto [dtype, shape, persistent] = tensor(spec, child_path(path, name), false);
          result.parameters.push_back({std::string(name), dtype, std::move(shape)});
        }
      } else if (key == "buffers") {
        for (const auto [name, spec] : as_object(value, path, "\"buffers\"")) {
          auto [dtype, shape, persistent] = tensor(spec, child_path(path, name), true);
          result.buffers.push_back({std::string(name), dtype, std::move(shape), persistent});
        }
      } else if (key == "children") {
        for (const auto [name, spec] : as_object(value, path, "\"children\"")) {
          result.children.push_back(module(spec, child_path(path, name)));
          result.children.back().name = name;
        }
      } else if (key == "tied" && path.empty()) {
        for (const element group : as_array(value, path, "\"tied\"")) {
          tied_.push_back(strings(group, path, "a tied group"));
        }
      } else if (key == "no_split" && path.empty()) {
        no_split_ = strings(value, path, "\"no_split\"");
      } else {
        fail(path, fmt::format("unknown key \"{}\"", key));
      }
    }
    if (!has_class) fail(path, "a module has no \"class\"");
    return result;
  }

  struct Tensor {
    Dtype dtype = Dtype::kF32;
    Shape shape;
    bool persistent = true;
  };

  Tensor tensor(element json, const std::string& path, bool is_buffer) {
    Tensor result;
    bool has_dtype = false;
    bool has_shape = false;
    for (const auto [key, value] : as_object(json, path, "a tensor")) {
      if (key == "dtype") {
        const std::string text = as_string(value, path, "\"dtype\"");
        const auto dtype = dtype_from_name(text);
        if (!dtype) fail(path, fmt::format("unknown dtype \"{}\"", text));
        result.dtype = *dtype;
        has_dtype = true;
      } else if (key == "shape") {
        result.shape = shape(value, path);
        has_shape = true;
      } else if (key == "persistent" && is_buffer && value.is_bool()) {
        result.persistent = value.get_bool();
      } else {
        fail(path, fmt::format("unexpected \"{}\"", key));
      }
    }
    if (!has_dtype || !has_shape) fail(path, "a tensor needs \"dtype\" and \"shape\"");
    return result;
  }

  Shape shape(element json, const std::string& path) {
    Shape result;
    std::uint64_t count = 1;
    for (const element item : as_array(json, path, "\"shape\"")) {
      std::int64_t size = 0;
      if (item.get(size) || size < 0) fail(path, "a shape is a list of whole numbers");
      const auto factor = static_cast<std::uint64_t>(size);
      if (factor > 0 && count > kMaxElements / factor) fail(path, "more than 2^56 elements");
      count *= factor;
      result.push_back(size);
    }
    return result;
  }

  std::string child_path(const std::string& path, std::string_view name) const {
    if (name.empty() || name.find('.') != name.npos) {
      fail(path, fmt::format("the name \"{}\" is empty or has a dot", name));
    }
    return path.empty() ? std::string(name) : fmt::format("{}.{}", path, name);
  }

  object as_object(element json, const std::string& path, std::string_view what) const {
    object result;
    if (json.get(result)) fail(path, fmt::format("{} is not an object", what));
    return result;
  }

  simdjson::dom::array as_array(element json, const std::string& path,
                                std::string_view what) const {
    simdjson::dom::array result;
    if (json.get(result)) fail(path, fmt::format("{} is not a list", what));
    return result;
  }

  std::string as_string(element json, const std::string& path, std::string_view what) const {
    std::string_view result;
    if (json.get(result)) fail(path, fmt::format("{} is not a string", what));
    return std::string(result);
  }

  std::vector<std::string> strings(element json, const std::string& path,
                                   std::string_view what) const {
    std::vector<std::string> result;
    for (const element item : as_array(json, path, what)) {
      result.push_back(as_string(item, path, "a name"));
    }
    return result;
  }

  [[noreturn]] void fail(const std::string& path, std::string_view why) const {
    throw Error(ErrorKind::kCorrupt, fmt::format("{}: module tree at '{}': {}", source_,
                                                 path.empty() ? "(root)" : path, why));
  }

  std::string_view source_;
  std::vector<std::vector<std::string>> tied_;
  std::vector<std::string> no_split_;
};

std::string quoted(const std::string& text) {
  return core::Json(text).dump();
}

class Writer {
 public:
  std::string write(const Description& description) {
    open_module(description.root);
    if (!description.tied.empty()) field("tied", core::Json(description.tied).dump());
    if (!description.no_split.empty()) field("no_split", core::Json(description.no_split).dump());
    return std::move(out_) + "}";
  }

 private:
  // Everything of a module but its closing brace.
  void open_module(const ModuleSpec& module) {
    out_ += "{\"class\": " + quoted(module.class_name);
    group("parameters", module.parameters,
          [&](const ParameterSpec& p) { out_ += tensor(p.dtype, p.shape) + "}"; });
    group("buffers", module.buffers, [&](const BufferSpec& b) {
      out_ += tensor(b.dtype, b.shape);
      out_ += b.persistent ? ", \"persistent\": true}" : ", \"persistent\": false}";
    });
    group("children", module.children, [&](const ModuleSpec& child) {
      open_module(child);
      out_ += "}";
    });
  }

  template <typename Items, typename Write>
  void group(std::string_view key, const Items& items, Write write) {
    if (items.empty()) return;
    out_ += fmt::format(",\n{:{}}\"{}\": {{", "", ++depth_, key);
    ++depth_;
    bool first = true;
    for (const auto& item : items) {
      out_ += fmt::format("{}\n{:{}}{}: ", first ? "" : ",", "", depth_, quoted(item.name));
      write(item);
      first = false;
    }
    out_ += "}";
    depth_ -= 2;
  }

  void field(std::string_view key, const std::string& value) {
    out_ += fmt::format(",\n \"{}\": {}", key, value);
  }

  static std::string tensor(Dtype dtype, const Shape& shape) {
    return fmt::format("{{\"dtype\": \"{}\", \"shape\": {}", name(dtype), core::Json(shape).dump());
  }

  std::string out_;
  int depth_ = 0;
};

}  // namespace

Description read_tree(std::string_view json, std::string_view source) {
  const core::BigJson document(json, source);
  Description result = Reader(source).read(document.root());
  core::check_sizes(result, source);
  return result;
}

std::string write_tree(const Description& description) {
  return Writer().write(description);
}

}  // namespace haul
