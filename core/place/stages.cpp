#include "core/place/stages.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/place/world.h"
#include "haul/error.h"

namespace haul::core {
namespace {

// The block that a name is, or lies below.
const std::size_t* find_block(const std::map<std::string, std::size_t, std::less<>>& blocks,
                              std::string_view name) {
  for (;;) {
    const auto found = blocks.find(name);
    if (found != blocks.end()) return &found->second;
    const std::size_t dot = name.rfind('.');
    if (dot == name.npos) return nullptr;
    name = name.substr(0, dot);
  }
}

struct OwnedTensor {
  std::string name;
  const ParameterSpec* parameter = nullptr;  // null: a buffer
  bool table = false;                        // a pass reads one row for each token
  std::size_t block = 0;
};

// In the order of the tree.
class Owners {
 public:
  explicit Owners(const std::vector<std::string>& blocks) : used_(blocks.size()) {
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (!numbers_.emplace(blocks[i], i).second) {
        throw Error(ErrorKind::kUsage, fmt::format("the block '{}' is named twice", blocks[i]));
      }
    }
  }

  void walk(const ModuleSpec& module, const std::string& prefix) {
    const bool table = module.class_name.ends_with("Embedding");
    for (const ParameterSpec& one : module.parameters) add({prefix + one.name, &one, table, 0});
    for (const BufferSpec& one : module.buffers) add({prefix + one.name, nullptr, table, 0});
    for (const ModuleSpec& child : module.children) walk(child, prefix + child.name + ".");
  }

  std::vector<OwnedTensor> finish() {
    for (const auto& [name, number] : numbers_) {
      if (used_[number]) continue;
      throw Error(ErrorKind::kUsage, fmt::format("the model has nothing in a block '{}'", name));
    }
    return std::move(tensors_);
  }

 private:
  void add(OwnedTensor tensor) {
    if (const std::size_t* const block = find_block(numbers_, tensor.name)) {
      last_ = *block;
      used_[last_] = true;
    }
    tensor.block = last_;
    tensors_.push_back(std::move(tensor));
  }

  std::map<std::string, std::size_t, std::less<>> numbers_;
  std::vector<bool> used_;
  std::size_t last_ = 0;
  std::vector<OwnedTensor> tensors_;
};

std::vector<OwnedTensor> owned_tensors(const Description& description,
                                       const std::vector<std::string>& blocks) {
  Owners owners(blocks);
  owners.walk(description.root, "");
  return owners.finish();
}

Executor executor_of(const Profile& profile, bool on_gpu) {
  Executor executor;
  const GpuProfile& gpu = profile.of_gpu(0);
  executor.bandwidth = on_gpu ? gpu.memory_bandwidth : profile.ram_bandwidth;
  executor.speed = on_gpu ? gpu.operations : profile.cpu_operations;
  return executor;
}

}  // namespace

std::vector<std::vector<std::string>> block_tensors(const Description& description,
                                                    const std::vector<std::string>& blocks) {
  std::vector<std::vector<std::string>> result(blocks.size());
  for (OwnedTensor& tensor : owned_tensors(description, blocks)) {
    result[tensor.block].push_back(std::move(tensor.name));
  }
  return result;
}

std::vector<double> block_seconds(const Description& description,
                                  const std::vector<std::string>& blocks, const Profile& profile,
                                  bool on_gpu, std::int64_t tokens) {
  std::vector<Unit> units(blocks.size());
  for (const OwnedTensor& tensor : owned_tensors(description, blocks)) {
    if (tensor.parameter == nullptr) continue;
    Unit& unit = units[tensor.block];
    const Shape& shape = tensor.parameter->shape;
    const auto elements = static_cast<double>(element_count(shape));
    double read = elements;
    if (tensor.table && !shape.empty() && shape[0] > 0) {
      const double row = elements / static_cast<double>(shape[0]);
      read = std::min(elements, row * static_cast<double>(tokens));
    } else {
      unit.operations += 2 * elements * static_cast<double>(tokens);
    }
    unit.touched += static_cast<Size>(read * bits(tensor.parameter->dtype) / 8);
  }
  std::vector<double> seconds;
  const Executor executor = executor_of(profile, on_gpu);
  seconds.reserve(units.size());
  for (const Unit& unit : units) seconds.push_back(compute_seconds(unit, executor));
  return seconds;
}

std::vector<Stage> even_stages(const std::vector<double>& seconds, std::size_t stages) {
  const std::size_t blocks = seconds.size();
  if (stages == 0 || stages > blocks) {
    throw Error(ErrorKind::kUsage,
                fmt::format("{} stages, and the model has {} blocks", stages, blocks),
                "a stage has at least one block: use fewer processes");
  }
  // best[s][b]: the slowest of s stages that have the blocks from b on, as fast as can be.
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(stages + 1, std::vector<double>(blocks + 1, kNever));
  std::vector<std::vector<std::size_t>> end(stages + 1, std::vector<std::size_t>(blocks + 1));
  best[0][blocks] = 0;
  for (std::size_t s = 1; s <= stages; ++s) {
    for (std::size_t begin = 0; begin < blocks; ++begin) {
      double sum = 0;
      for (std::size_t e = begin + 1; e <= blocks; ++e) {
        sum += seconds[e - 1];
        const double slowest = std::max(sum, best[s - 1][e]);
        if (slowest <= best[s][begin] && slowest < kNever) {
          best[s][begin] = slowest;
          end[s][begin] = e;
        }
      }
    }
  }
  std::vector<Stage> result;
  std::size_t begin = 0;
  for (std::size_t s = stages; s > 0; --s) {
    result.push_back({begin, end[s][begin]});
    begin = end[s][begin];
  }
  return result;
}

std::vector<Stage> named_stages(const std::vector<std::string>& blocks,
                                const std::vector<std::string>& split_points, std::size_t stages) {
  std::vector<Stage> result{{0, blocks.size()}};
  for (const std::string& name : split_points) {
    const auto found = std::find(blocks.begin(), blocks.end(), name);
    const auto at = static_cast<std::size_t>(found - blocks.begin());
    if (found == blocks.end()) {
      throw Error(ErrorKind::kUsage, fmt::format("there is no block '{}' to split at", name),
                  fmt::format("the blocks are '{}' to '{}'", blocks.front(), blocks.back()));
    }
    if (at == 0) continue;
    if (at <= result.back().begin) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("the split point '{}' does not come behind the one before it", name));
    }
    result.back().end = at;
    result.push_back({at, blocks.size()});
  }
  if (result.size() != stages) {
    throw Error(
        ErrorKind::kUsage,
        fmt::format("the split points make {} stages for {} processes", result.size(), stages),
        fmt::format("name {} blocks, or let the planner choose", stages - 1));
  }
  return result;
}

}  // namespace haul::core
