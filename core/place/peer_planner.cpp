// Accelerate's infer_auto_device_map: one pass over the modules in order, one device at a time,
// never going back to an earlier device.

#include "core/place/peer_planner.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "core/place/peer_layers.h"
#include "core/place/peer_queue.h"
#include "core/place/peer_ties.h"
#include "haul/device_map.h"

namespace haul {
namespace {

using core::NodeMap;
using core::PeerLayers;
using core::PeerQueue;
using core::PeerTies;
using Index = ModuleSizes::Index;
using Signed = std::int64_t;

// Thrown where the peer looks for a module that is not in its queue.
struct PeerIndexError {};

Signed plus(Signed a, Signed b) {
  Signed sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::numeric_limits<Signed>::max();
  return sum;
}

// What comes along when a module is placed.
struct Companions {
  Signed bits = 0;             // of the module and all of them
  std::vector<Index> entries;  // the queued modules that hold a tied tensor, one for each tensor
  bool complete = true;        // nothing tied to it has left the queue
};

class PeerPlanner {
 public:
  PeerPlanner(const Description& description, const ModuleSizes& sizes, const MaxMemory& memory,
              const MapOptions& options, bool exact)
      : sizes_(sizes),
        buffers_(buffer_sizes(description, sizes, options)),
        options_(options),
        exact_(exact),
        layers_(sizes, options.no_split),
        ties_(sizes, find_tied_parameters(description), exact),
        queue_(sizes),
        placed_(sizes.nodes().size()),
        searched_(options.fallback_allocation ? sizes.nodes().size() : 0),
        taken_(searched_.size()) {
    for (const Budget& item : memory) {
      if (item.device != kDiskDevice) slots_.push_back({item.device, signed_bits(item.bits)});
    }
    bool main_seen = false;
    const bool has_mps = budget_of(memory, {DeviceKind::kMps, 0}).has_value();
    for (Slot& slot : slots_) {
      if (slot.device.kind == DeviceKind::kMps) {
        slot.keeps_reserve = true;
      } else if (slot.device.kind == DeviceKind::kCpu) {
        slot.keeps_reserve = !has_mps;
      } else if (!main_seen) {
        slot.keeps_reserve = !has_mps;
        main_seen = true;
      }
    }
    slots_.push_back({kDiskDevice, 0});
  }

  NodeMap placed() const {
    NodeMap result;
    for (Index i = 0; i < placed_.size();) {
      if (placed_[i] > 0) result.push_back({i, slots_[placed_[i] - 1].device});
      i = placed_[i] > 0 ? sizes_.next(i) : i + 1;
    }
    return result;
  }
  // Whether a module with saved buffers of its own was split: the peer forgets those.
  bool loses_buffers() const { return loses_buffers_; }

  InferredMap run() {
    while (!queue_.empty()) step();
    InferredMap result;
    warn_about_buffers(&result);
    for (const Slot& slot : slots_) {
      if (slot.reserved > 0) {
        result.reserves.push_back({slot.device, static_cast<Bits>(slot.reserved)});
      }
      if (slot.minimum_needed) {
        result.minimum_needed.push_back({slot.device, static_cast<Bits>(*slot.minimum_needed)});
      }
    }
    return result;
  }

 private:
  struct Slot {
    Device device;
    Signed budget = 0;
    bool keeps_reserve = false;
    Signed used = 0;
    Signed buffers = 0;
    Signed reserved = 0;
    std::optional<Signed> minimum_needed = std::nullopt;
  };

  // Nothing where the buffers do not matter or there are none.
  static std::optional<ModuleSizes> buffer_sizes(const Description& description,
                                                 const ModuleSizes& sizes,
                                                 const MapOptions& options) {
    const auto& nodes = sizes.nodes();
    const bool any = std::any_of(nodes.begin(), nodes.end(), [](const ModuleSizes::Node& node) {
      return node.kind == ModuleSizes::Kind::kBuffer;
    });
    if (options.offload_buffers || !any) return std::nullopt;
    return compute_module_sizes(description, {options.sizes.dtype_bits, {}, /*buffers_only=*/true});
  }

  static Signed signed_bits(Bits bits) { return static_cast<Signed>(bits); }

  void step() {
    const Index node = queue_.front();
    queue_.remove(node);
    layers_.pop(node);
    Slot& slot = slots_[current_];
    const Signed bits = signed_bits(sizes_[node].bits);
    const Companions companions =
        companions_of(node, [&](Index entry) { return queue_.contains(entry); });
    const bool unlimited = slot.device == kDiskDevice;
    const Signed reserve = slot.keeps_reserve ? signed_bits(layers_.reserve()) : 0;
    const Signed limit = slot.budget - reserve;

    if (unlimited || plus(slot.used, companions.bits) <= limit) {
      place(node, companions, &slot);
      return;
    }
    if (!companions.entries.empty() && plus(slot.used, bits) <= limit &&
        split_a_companion(node, companions)) {
      return;
    }
    if (plus(slot.used, bits) >= limit && layers_.splittable(node)) {
      note_split(node);
      queue_.push_front_parts(node);
      layers_.put_back(node);
      layers_.refresh();
      return;
    }
    if (slot.used == 0 && options_.fallback_allocation) {
      const Signed room = slot.budget - std::max(signed_bits(layers_.reserve()), companions.bits);
      if (const std::optional<Index> small = search_fallback(room)) {
        bring_to_front(*small, node);
        return;
      }
    }
    if (slot.used == 0) slot.minimum_needed = plus(companions.bits, reserve);
    slot.used = plus(slot.used, reserve);
    slot.reserved = reserve;
    ++current_;
    queue_.push_front(node);
    layers_.put_back(node);
  }

  template <typename Queued>
  Companions companions_of(Index node, Queued queued) const {
    if (exact_) return all_companions_of(node, queued);
    Companions result;
    result.bits = signed_bits(sizes_[node].bits);
    for (const Index tensor : ties_.outside(node)) {
      const std::optional<Index> entry = entry_of(tensor, queued);
      if (!entry) throw PeerIndexError{};
      result.entries.push_back(*entry);
      result.bits = plus(result.bits, signed_bits(sizes_[*entry].bits - sizes_[tensor].bits));
    }
    return result;
  }

  // Also what is tied to the companions, each once; `complete` when all of it is still queued.
  template <typename Queued>
  Companions all_companions_of(Index node, Queued queued) const {
    Companions result;
    result.bits = signed_bits(sizes_[node].bits);
    for (std::size_t k = 0; k <= result.entries.size(); ++k) {
      for (const Index tensor : ties_.outside(k == 0 ? node : result.entries[k - 1])) {
        if (node <= tensor && tensor < sizes_[node].end) continue;
        const std::optional<Index> entry = entry_of(tensor, queued);
        if (!entry) {
          result.complete = false;
        } else if (std::find(result.entries.begin(), result.entries.end(), *entry) ==
                   result.entries.end()) {
          result.entries.push_back(*entry);
          result.bits = plus(result.bits, signed_bits(sizes_[*entry].bits));
        }
      }
    }
    return result;
  }

  // The queued module that holds a tensor. The peer does not find a tensor that is queued itself.
  template <typename Queued>
  std::optional<Index> entry_of(Index tensor, Queued queued) const {
    if (exact_ && queued(tensor)) return tensor;
    for (Index i = sizes_[tensor].parent; i != ModuleSizes::kRoot; i = sizes_[i].parent) {
      if (queued(i)) return i;
    }
    return std::nullopt;
  }

  void place(Index node, const Companions& companions, Slot* slot) {
    slot->used = plus(slot->used, companions.bits);
    const auto number = static_cast<std::uint32_t>(slot - slots_.data() + 1);
    placed_[node] = number;
    for (const Index entry : companions.entries) {
      if (queue_.contains(entry)) {
        queue_.remove(entry);
        layers_.drop(entry);
      }
      placed_[entry] = number;
    }
    if (buffers_ && sizes_[node].module != nullptr) {
      slot->buffers = plus(slot->buffers, buffer_bits(node));
    }
  }

  bool split_a_companion(Index node, const Companions& companions) {
    for (const Index entry : companions.entries) {
      if (!layers_.splittable(entry)) continue;
      note_split(entry);
      queue_.expand(entry);
      queue_.push_front(node);
      layers_.put_back(node);
      layers_.refresh();
      return true;
    }
    return false;
  }

  void note_split(Index module) {
    for (const BufferSpec& buffer : sizes_[module].module->buffers) {
      loses_buffers_ = loses_buffers_ || buffer.persistent;
    }
  }

  // The first node, depth first, that fits in `room` with all that is tied to it.
  std::optional<Index> search_fallback(Signed room) {
    if (room < 0) return std::nullopt;
    ++search_;
    const auto queued = [&](Index node) {
      return (queue_.contains(node) || searched_[node] == search_) && taken_[node] != search_;
    };
    std::vector<Index> stack;
    for (Index next = queue_.front(); next != PeerQueue::kEnd; next = queue_.after(next)) {
      stack.push_back(next);
      while (!stack.empty()) {
        const Index node = stack.back();
        stack.pop_back();
        taken_[node] = search_;
        const Companions companions = companions_of(node, queued);
        if (companions.complete && companions.bits <= room) return node;
        if (!layers_.splittable(node)) continue;
        const std::size_t begin = stack.size();
        for (Index i = ModuleSizes::first_child(node); i != sizes_[node].end; i = sizes_.next(i)) {
          if (sizes_[i].kind == ModuleSizes::Kind::kBuffer) continue;
          stack.push_back(i);
          searched_[i] = search_;
        }
        std::reverse(stack.begin() + static_cast<std::ptrdiff_t>(begin), stack.end());
      }
    }
    return std::nullopt;
  }

  void bring_to_front(Index small, Index node) {
    while (!queue_.contains(small)) {
      Index holder = sizes_[small].parent;
      while (!queue_.contains(holder)) holder = sizes_[holder].parent;
      note_split(holder);
      queue_.expand(holder);
    }
    queue_.remove(small);
    queue_.push_front(node);
    layers_.put_back(node);
    queue_.push_front(small);
  }

  // The peer measures a module's buffers by their names inside the module, so a special dtype
  // counts only where its name happens to be one of those.
  Signed buffer_bits(Index node) const {
    const ModuleSizes& buffers = *buffers_;
    Signed bits = signed_bits(buffers[node].bits);
    for (const auto& [relative, element_bits] : options_.sizes.special_bits) {
      const auto buffer = buffers.find(sizes_.name(node) + "." + relative);
      if (!buffer || buffers[*buffer].kind != ModuleSizes::Kind::kBuffer) continue;
      const std::uint64_t count = buffers[*buffer].elements;
      bits += signed_bits(count * static_cast<std::uint64_t>(element_bits)) -
              signed_bits(buffers[*buffer].bits);
    }
    return bits;
  }

  void warn_about_buffers(InferredMap* result) const {
    Signed offloaded = 0;
    bool has_accelerator = false;
    for (const Slot& slot : slots_) {
      has_accelerator |= slot.device.is_accelerator();
      if (!slot.device.is_accelerator()) offloaded = plus(offloaded, slot.buffers);
    }
    if (offloaded == 0 || !has_accelerator) return;
    for (const Slot& slot : slots_) {
      if (slot.device.is_accelerator() && slot.budget >= plus(offloaded, slot.used)) return;
    }
    result->warnings.push_back(
        fmt::format("the buffers of offloaded modules take {} bytes on the accelerator, and none "
                    "has that much left; --offload-buffers moves them too",
                    whole_bytes(static_cast<Bits>(offloaded))));
  }

  const ModuleSizes& sizes_;
  const std::optional<ModuleSizes> buffers_;
  const MapOptions& options_;
  const bool exact_;
  PeerLayers layers_;
  PeerTies ties_;
  PeerQueue queue_;
  std::vector<Slot> slots_;
  std::size_t current_ = 0;
  std::vector<std::uint32_t> placed_;  // by node: its slot, from 1
  bool loses_buffers_ = false;         // of a kind that is saved
  std::uint32_t search_ = 0;
  std::vector<std::uint32_t> searched_;  // by node: the last search that put it on its list
  std::vector<std::uint32_t> taken_;     // and the last that took it off
};

// Saved buffers of split modules, which the peer forgets: each beside the part that came first.
DeviceMap lost_buffers(const DeviceMap& map, const std::vector<std::string>& uncovered) {
  DeviceMap result;
  std::map<std::string, Device, std::less<>> first_below;
  for (const auto& [name, device] : map) {
    for (std::size_t dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1)) {
      first_below.emplace(name.substr(0, dot), device);
    }
    first_below.emplace("", device);
  }
  for (const std::string& name : uncovered) {
    const std::size_t dot = name.rfind('.');
    const auto found = first_below.find(dot == name.npos ? "" : name.substr(0, dot));
    result.emplace_back(name, found == first_below.end() ? kDiskDevice : found->second);
  }
  return result;
}

}  // namespace

InferredMap infer_auto_device_map(const Description& description, const MaxMemory& memory,
                                  const MapOptions& options) {
  return core::infer_auto_device_map(description, compute_module_sizes(description, options.sizes),
                                     memory, options);
}

namespace core {

InferredMap infer_auto_device_map(const Description& description, const ModuleSizes& sizes,
                                  const MaxMemory& memory, const MapOptions& options) {
  const auto finish = [&](PeerPlanner planner, std::string peer_failure) {
    InferredMap result = planner.run();
    result.peer_failure = std::move(peer_failure);
    const NodeMap placed = planner.placed();
    result.map = named(sizes, placed, options.clean_result);
    if (!planner.loses_buffers()) return result;
    const DeviceMapCheck check = check_device_map(description, result.map);
    if (check.covers_everything()) return result;
    if (result.peer_failure.empty()) result.peer_failure = "rejected";
    DeviceMap whole = named(sizes, placed, false);
    for (auto& entry : lost_buffers(whole, check.uncovered)) whole.push_back(std::move(entry));
    result.map = options.clean_result ? clean_device_map(whole) : sorted(std::move(whole));
    return result;
  };
  try {
    return finish(PeerPlanner(description, sizes, memory, options, false), "");
  } catch (const PeerIndexError&) {
    return finish(PeerPlanner(description, sizes, memory, options, true), "IndexError");
  }
}

std::optional<NodeMap> infer_node_map(const Description& description, const ModuleSizes& sizes,
                                      const MaxMemory& memory, const MapOptions& options) {
  try {
    PeerPlanner planner(description, sizes, memory, options, false);
    planner.run();
    if (planner.loses_buffers()) return std::nullopt;
    return planner.placed();
  } catch (const PeerIndexError&) {
    return std::nullopt;
  }
}

}  // namespace core
}  // namespace haul
