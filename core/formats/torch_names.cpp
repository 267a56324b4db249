#include "core/formats/torch_names.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/quote.h"
#include "core/base/utf8.h"
#include "core/formats/torch_globals.h"
#include "haul/error.h"

namespace haul::core {
namespace {

using Id = Pickle::Id;

constexpr std::array<std::string_view, 4> kWeightKeys = {"state_dict", "model_state_dict", "model",
                                                         "module"};
constexpr std::string_view kOnlyTensor = "tensor";
constexpr int kMaxDepth = 200;
// A tensor takes dozens of bytes in the pickle, so names of up to a thousand bytes fit.
constexpr std::size_t kWorkPerPickleByte = 16;
constexpr std::size_t kLeastWork = 1 << 20;
constexpr std::size_t kMaxNote = 4096;

[[noreturn]] void unsupported(std::string_view where, std::string_view message) {
  throw Error(ErrorKind::kUnsupported,
              where.empty() ? std::string(message) : fmt::format("{}: {}", quote(where), message));
}

class Namer {
 public:
  Namer(const Pickle& pickle, const TorchTensors& tensors, std::size_t pickle_size)
      : pickle_(pickle),
        tensors_(tensors),
        work_left_(kLeastWork + kWorkPerPickleByte * pickle_size),
        holds_(pickle.size(), Holds::kUnknown) {}

  TorchZip run() {
    const Id root = pickle_.root();
    if (tensors_.is_tensor(root)) {
      name_ = kOnlyTensor;
      add(root);
    } else if (holds(root, 0)) {
      walk(unwrap(root), 0);
    }
    return std::move(result_);
  }

 private:
  enum class Holds : std::uint8_t { kUnknown, kBeingAsked, kNo, kYes };

  const TorchGlobal* callee(Id id) const {
    if (pickle_.kind(id) != PickleKind::kCall) return nullptr;
    return &torch_global(pickle_.global(pickle_.items(id)[0]));
  }

  bool is_dict(Id id) const {
    const TorchGlobal* function = callee(id);
    return function == nullptr ? pickle_.kind(id) == PickleKind::kDict
                               : function->role == TorchRole::kDict;
  }

  // Key, value, key, value.
  std::span<const Id> entries(Id dict) const {
    return pickle_.items(dict).subspan(callee(dict) == nullptr ? 0 : 2);
  }

  // Whether there is a tensor somewhere in a value. Each value is asked once.
  bool holds(Id id, int depth) {
    if (holds_[id] == Holds::kBeingAsked) unsupported({}, "it holds a value that contains itself");
    if (holds_[id] != Holds::kUnknown) return holds_[id] == Holds::kYes;
    bool found = tensors_.is_tensor(id);
    const bool outside = pickle_.kind(id) == PickleKind::kPersistent;
    if (!found && !outside) {
      if (depth == kMaxDepth) {
        unsupported({}, fmt::format("its values are nested more than {} deep", kMaxDepth));
      }
      holds_[id] = Holds::kBeingAsked;
      for (const Id item : pickle_.items(id)) found |= holds(item, depth + 1);
    }
    holds_[id] = found ? Holds::kYes : Holds::kNo;
    return found;
  }

  // The dict of the model's weights, where the root holds it beside other things.
  Id unwrap(Id root) {
    if (!is_dict(root)) return root;
    const auto items = entries(root);
    std::optional<std::size_t> weights;
    std::string left_out;
    for (std::size_t i = 0; i < items.size(); i += 2) {
      const std::string_view key = pickle_.text(items[i]);
      if (!holds(items[i + 1], 0)) continue;
      const bool usual =
          std::find(kWeightKeys.begin(), kWeightKeys.end(), key) != kWeightKeys.end();
      if (usual && is_dict(items[i + 1])) {
        if (weights) return root;
        weights = i;
        continue;
      }
      // A tensor beside is a weight as well, unless it is a single number such as a best score.
      if (tensors_.is_tensor(items[i + 1]) && !read(items[i + 1], key).shape.empty()) return root;
      if (left_out.size() < kMaxNote) {
        left_out += (left_out.empty() ? "" : ", ") + quote(key);
      }
    }
    if (!weights) return root;
    if (!left_out.empty()) {
      result_.notes.push_back(fmt::format("the weights are those under {}; left out: {}",
                                          quote(pickle_.text(items[*weights])), left_out));
    }
    return items[*weights + 1];
  }

  // Adds the tensors in a container, whose name is name_.
  void walk(Id id, int depth) {
    if (depth == kMaxDepth)
      unsupported(name_, fmt::format("it is nested more than {} deep", kMaxDepth));
    spend(pickle_.items(id).size());
    const PickleKind kind = pickle_.kind(id);
    if (is_dict(id)) {
      if (callee(id) != nullptr && holds(pickle_.items(id)[1], 0)) {
        unsupported(name_, "an OrderedDict with tensors among its arguments");
      }
      const auto items = entries(id);
      for (std::size_t i = 0; i < items.size(); i += 2) {
        if (holds(items[i], 0)) unsupported(name_, "a dict with a tensor as a key");
        if (holds(items[i + 1], 0)) descend(key_text(items[i]), items[i + 1], depth);
      }
    } else if (kind == PickleKind::kList || kind == PickleKind::kTuple) {
      const auto items = pickle_.items(id);
      for (std::size_t i = 0; i < items.size(); ++i) {
        if (holds(items[i], 0)) descend(std::to_string(i), items[i], depth);
      }
    } else {
      const TorchGlobal* function = callee(id);
      unsupported(name_, fmt::format("tensors inside of {} have no name",
                                     function == nullptr ? "a set" : function->name));
    }
  }

  void descend(const std::string& key, Id value, int depth) {
    const std::size_t length = name_.size();
    if (length != 0) name_ += '.';
    name_ += key;
    spend(name_.size() + 1);
    if (tensors_.is_tensor(value)) {
      add(value);
    } else {
      walk(value, depth + 1);
    }
    name_.resize(length);
  }

  // Sharing can make a small pickle stand for endlessly many names.
  void spend(std::size_t work) {
    if (work > work_left_) {
      unsupported({}, "its shared values stand for far more names than the pickle has bytes");
    }
    work_left_ -= work;
  }

  std::string key_text(Id key) const {
    const PickleKind kind = pickle_.kind(key);
    if (kind == PickleKind::kInt) return std::to_string(pickle_.integer(key));
    if (kind == PickleKind::kString) return std::string(pickle_.text(key));
    unsupported(name_, "a dict of tensors with a key that is neither a string nor an integer");
  }

  StoredTensor read(Id id, std::string_view name) const {
    try {
      return tensors_.read(id);
    } catch (Error& error) {
      error.add_context("tensor " + quote(name));
      throw;
    }
  }

  void add(Id id) {
    StoredTensor tensor = read(id, name_);
    if (!is_utf8(name_) || name_.find('\0') != name_.npos) {
      throw Error(ErrorKind::kCorrupt,
                  fmt::format("tensor {}: its name is no text in UTF-8", quote(name_)));
    }
    if (!names_.insert(name_).second) {
      throw Error(ErrorKind::kCorrupt,
                  fmt::format("tensor {}: there are two of this name", quote(name_)));
    }
    tensor.name = name_;
    result_.tensors.push_back(std::move(tensor));
  }

  const Pickle& pickle_;
  const TorchTensors& tensors_;
  std::size_t work_left_;  // bytes of names and items of containers
  std::vector<Holds> holds_;
  std::string name_;  // of the value at hand
  std::unordered_set<std::string> names_;
  TorchZip result_;
};

}  // namespace

TorchZip name_torch_tensors(const Pickle& pickle, const TorchTensors& tensors,
                            std::size_t pickle_size) {
  return Namer(pickle, tensors, pickle_size).run();
}

}  // namespace haul::core
