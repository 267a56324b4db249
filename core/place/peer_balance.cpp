// Accelerate's get_balanced_memory.

#include <algorithm>
#include <map>
#include <optional>

#include "core/place/peer_planner.h"

namespace haul {
namespace {

using Index = ModuleSizes::Index;
using Kind = ModuleSizes::Kind;

// What the peer's size table says of a node. It lists those at or above a tensor that is counted.
struct Listing {
  bool repeat;  // a tensor that is counted under another of its names
  bool listed;
  bool has_parameter;  // at or below it, and listed
  bool has_module;     // below it, and listed
};

void mark_repeats(const Description& description, const ModuleSizes& sizes,
                  std::vector<Listing>* listings) {
  for (const auto& group : find_tied_parameters(description)) {
    std::vector<Index> members;
    for (const std::string& name : group) {
      if (const auto node = sizes.find(name)) members.push_back(*node);
    }
    std::sort(members.begin(), members.end());
    for (std::size_t i = 1; i < members.size(); ++i) (*listings)[members[i]].repeat = true;
  }
}

// The first listed instance of an unsplittable class: one with parameters where there is any.
struct FirstInstance {
  std::optional<Bits> with_parameter;
  std::optional<Bits> without;
};

// What the peer adds to an even share: the largest block or, where that is more, the mean of the
// modules below which no other module is listed.
Bits headroom(const Description& description, const ModuleSizes& sizes, const MapOptions& options) {
  std::vector<Listing> listings(sizes.nodes().size());
  mark_repeats(description, sizes, &listings);
  std::map<std::string_view, FirstInstance> blocks;
  double sum = 0;
  std::size_t count = 0;
  // Backwards: all that is below a module comes before it.
  for (auto i = static_cast<Index>(listings.size()); --i > 0;) {
    const ModuleSizes::Node& node = sizes[i];
    const Listing& own = listings[i];  // not a copy: it was just written byte by byte
    Listing& parent = listings[node.parent];
    if (node.module == nullptr) {
      if (own.repeat) continue;
      parent.listed = true;
      if (node.kind == Kind::kParameter) parent.has_parameter = true;
      continue;
    }
    if (!own.listed) continue;
    parent.listed = parent.has_module = true;
    if (own.has_parameter) parent.has_parameter = true;
    if (!own.has_module) {
      sum += exact_bytes(node.bits);
      ++count;
    }
    if (options.no_split.empty()) continue;
    const std::string& class_name = node.module->class_name;
    if (std::find(options.no_split.begin(), options.no_split.end(), class_name) !=
        options.no_split.end()) {
      FirstInstance& first = blocks[class_name];
      (own.has_parameter ? first.with_parameter : first.without) = node.bits;
    }
  }
  Bits block = 0;
  for (const auto& [class_name, first] : blocks) {
    block = std::max(block, first.with_parameter ? *first.with_parameter : *first.without);
  }
  // In whole bytes, as the peer has it.
  const auto mean = static_cast<Bytes>(sum / static_cast<double>(std::max<std::size_t>(count, 1)));
  return 8 * static_cast<Bits>(1.25 * std::max(exact_bytes(block), static_cast<double>(mean)));
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
