// Accelerate's get_balanced_memory.

#include <algorithm>
#include <map>
#include <unordered_set>

#include "core/place/peer_planner.h"

namespace haul {
namespace {

using Index = ModuleSizes::Index;
using Kind = ModuleSizes::Kind;

// Which nodes the peer's size table lists: those at or above a tensor that is counted.
std::vector<bool> listed_nodes(const Description& description, const ModuleSizes& sizes) {
  std::unordered_set<Index> repeats;
  for (const auto& group : find_tied_parameters(description)) {
    std::vector<Index> members;
    for (const std::string& name : group) {
      if (const auto node = sizes.find(name)) members.push_back(*node);
    }
    std::sort(members.begin(), members.end());
    for (std::size_t i = 1; i < members.size(); ++i) repeats.insert(members[i]);
  }
  std::vector<bool> listed(sizes.nodes().size());
  listed[ModuleSizes::kRoot] = true;
  for (Index i = 1; i < sizes.nodes().size(); ++i) {
    if (sizes[i].module != nullptr || repeats.contains(i)) continue;
    for (Index at = i; !listed[at]; at = sizes[at].parent) listed[at] = true;
  }
  return listed;
}

// The first listed instance of each unsplittable class: those with parameters first.
Bits largest_first_instance(const ModuleSizes& sizes, const std::vector<bool>& listed,
                            const std::vector<bool>& has_parameter, const MapOptions& options) {
  std::map<std::string_view, Bits> first;
  for (const bool with_parameter : {true, false}) {
    for (Index i = 1; i < sizes.nodes().size(); ++i) {
      if (!listed[i] || sizes[i].module == nullptr || has_parameter[i] != with_parameter) continue;
      const std::string& class_name = sizes[i].module->class_name;
      if (std::find(options.no_split.begin(), options.no_split.end(), class_name) !=
          options.no_split.end()) {
        first.emplace(class_name, sizes[i].bits);
      }
    }
  }
  Bits largest = 0;
  for (const auto& [class_name, bits] : first) largest = std::max(largest, bits);
  return largest;
}

// Mean bytes, rounded down, of the listed modules below which no other module is listed.
Bytes mean_of_final_modules(const ModuleSizes& sizes, const std::vector<bool>& listed) {
  std::vector<bool> has_module(sizes.nodes().size());
  double sum = 0;
  std::size_t count = 0;
  for (Index i = static_cast<Index>(sizes.nodes().size()); --i > 0;) {
    if (!listed[i] || sizes[i].module == nullptr) continue;
    has_module[sizes[i].parent] = true;
    if (has_module[i]) continue;
    sum += exact_bytes(sizes[i].bits);
    ++count;
  }
  return static_cast<Bytes>(sum / static_cast<double>(std::max<std::size_t>(count, 1)));
}

// A parameter of its own: registered under its first name.
std::vector<bool> nodes_with_parameters(const ModuleSizes& sizes, const std::vector<bool>& listed) {
  std::vector<bool> result(sizes.nodes().size());
  for (Index i = static_cast<Index>(sizes.nodes().size()); --i > 0;) {
    if (sizes[i].kind == Kind::kParameter && listed[i]) result[i] = true;
    if (result[i]) result[sizes[i].parent] = true;
  }
  return result;
}

Bits headroom(const Description& description, const ModuleSizes& sizes, const MapOptions& options) {
  const std::vector<bool> listed = listed_nodes(description, sizes);
  const Bits block =
      largest_first_instance(sizes, listed, nodes_with_parameters(sizes, listed), options);
  const double mean = static_cast<double>(mean_of_final_modules(sizes, listed));
  return 8 * static_cast<Bits>(1.25 * std::max(exact_bytes(block), mean));
}

// Room that the others leave over for the first accelerator, by the peer's arithmetic, which
// counts on numbers without gaps; where those are missing, by the accelerators there are.
Bits left_for_first(const MaxMemory& memory, const std::vector<std::size_t>& usable, Bits total,
                    std::string* peer_failure) {
  bool peer_can = budget_of(memory, gpu(0)).has_value();
  Bits others = 0;
  for (int i = 1; i < static_cast<int>(usable.size()); ++i) {
    const auto bits = budget_of(memory, gpu(i));
    peer_can = peer_can && bits.has_value();
    others = std::min(total, others + std::min(bits.value_or(0), total));
  }
  if (!peer_can) {
    *peer_failure = "KeyError";
    others = 0;
    for (std::size_t k = 1; k < usable.size(); ++k) {
      others = std::min(total, others + std::min(memory[usable[k]].bits, total));
    }
  }
  return total - others;
}

}  // namespace

BalancedMemory get_balanced_memory(const Description& description, const MaxMemory& memory,
                                   const MapOptions& options, const BalanceOptions& balance) {
  return core::get_balanced_memory(description, compute_module_sizes(description, options.sizes),
                                   memory, options, balance);
}

namespace core {

BalancedMemory get_balanced_memory(const Description& description, const ModuleSizes& sizes,
                                   const MaxMemory& memory, const MapOptions& options,
                                   const BalanceOptions& balance) {
  BalancedMemory result{memory, {}};
  if (budget_of(memory, kDiskDevice)) result.peer_failure = "RuntimeError";
  std::vector<std::size_t> usable;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    if (memory[i].device.kind == DeviceKind::kGpu && memory[i].bits > 0) usable.push_back(i);
  }
  if (usable.empty()) return result;
  const bool low_zero = balance.low_zero && usable.size() > 1;
  if (usable.size() == 1 && balance.from_machine) {
    Bits& bits = result.memory[usable.front()].bits;
    bits = static_cast<Bits>(exact_bytes(bits) * 0.9 * 8);
  }

  const Bits total = sizes.total();
  const Bits share = total / 8 / (usable.size() - (low_zero ? 1 : 0)) * 8;
  const Bits limit = share + headroom(description, sizes, options);
  for (std::size_t k = 0; k + 1 < usable.size(); ++k) {
    Budget& item = result.memory[usable[k]];
    if (low_zero && item.device.index == 0) continue;
    item.bits = std::min(item.bits, limit);
  }
  if (low_zero) {
    std::string failure;
    const Bits left = left_for_first(result.memory, usable, total, &failure);
    if (result.peer_failure.empty()) result.peer_failure = failure;
    const std::size_t first = failure.empty() ? 0 : usable.front();
    result.memory[first].bits = std::min(result.memory[first].bits, left);
  }
  return result;
}

}  // namespace core
}  // namespace haul
