#include "core/place/node_map.h"

#include <algorithm>

namespace haul::core {
namespace {

using Index = ModuleSizes::Index;

// Names entries and sorts them by name: each module's children by their own parts of the name,
// which are shorter and fewer than all names.
class Namer {
 public:
  Namer(const ModuleSizes& sizes, const NodeMap& entries, bool clean, NamePlaces* places)
      : sizes_(sizes), entries_(entries), clean_(clean), places_(places) {}

  DeviceMap run() && {
    if (entries_.empty()) return {};
    const auto count = static_cast<std::uint32_t>(entries_.size());
    if (is_one(ModuleSizes::kRoot, 0, count)) return {{"", entries_[0].device}};
    result_.reserve(count);
    if (places_ != nullptr) places_->assign(sizes_.nodes().size(), kNoPlace);
    add_below(ModuleSizes::kRoot, 0, count);
    if (!whole_names_differ_) return std::move(result_);
    if (places_ != nullptr) places_->clear();
    return sorted(std::move(result_));
  }

 private:
  // A child with its entries.
  struct Group {
    std::uint64_t start;  // of its name, so that most comparisons are of numbers
    const std::string* segment;
    Index child;
    std::uint32_t begin;
    std::uint32_t end;
  };

  static bool before(const Group& a, const Group& b) {
    return a.start != b.start ? a.start < b.start : *a.segment < *b.segment;
  }

  // Whether the entries become one.
  bool is_one(Index node, std::uint32_t begin, std::uint32_t end) const {
    if (end - begin == 1) return entries_[begin].node == node;
    for (std::uint32_t i = begin + 1; clean_ && i < end; ++i) {
      if (entries_[i].device != entries_[begin].device) return false;
    }
    return clean_;
  }

  void add_below(Index node, std::uint32_t begin, std::uint32_t end) {
    const std::size_t first = groups_.size();
    bool in_order = true;
    for (Index child = ModuleSizes::first_child(node); begin < end; child = sizes_.next(child)) {
      const Index below = sizes_[child].end;
      if (entries_[begin].node >= below) continue;
      Group& group = groups_.emplace_back();
      group.segment = sizes_[child].segment;
      group.start = start_of(*group.segment);
      group.child = child;
      in_order = in_order && (groups_.size() == first + 1 || before(*(&group - 1), group));
      group.begin = begin;
      // None stands below another, so a child that has its own has no more.
      if (entries_[begin++].node != child) {
        while (begin < end && entries_[begin].node < below) ++begin;
      }
      group.end = begin;
    }
    const std::size_t last = groups_.size();
    if (!in_order) {
      std::sort(groups_.begin() + static_cast<std::ptrdiff_t>(first), groups_.end(), before);
    }
    const std::size_t length = path_.length();
    for (std::size_t i = first; i < last; ++i) {
      const Group& group = groups_[i];
      path_.add(*group.segment);
      if (is_one(group.child, group.begin, group.end)) {
        if (places_ != nullptr) {
          (*places_)[group.child] = static_cast<std::uint32_t>(result_.size());
        }
        result_.emplace_back(path_.text(), entries_[group.begin].device);
      } else {
        path_.add_dot();
        add_below(group.child, group.begin, group.end);
      }
      path_.cut(length);
    }
    groups_.resize(first);
  }

  std::uint64_t start_of(const std::string& segment) {
    std::uint64_t start = 0;
    unsigned shift = 64;
    for (const char c : segment) {
      const auto byte = static_cast<unsigned char>(c);
      // "a-b" is before "a.c", although "a" is before "a-b".
      if (byte <= '.') whole_names_differ_ = true;
      if (shift > 0) start |= std::uint64_t{byte} << (shift -= 8);
    }
    return start;
  }

  const ModuleSizes& sizes_;
  const NodeMap& entries_;
  const bool clean_;
  NamePlaces* const places_;
  std::vector<Group> groups_;  // of every module on the path
  Path path_;
  bool whole_names_differ_ = false;
  DeviceMap result_;
};

}  // namespace

void Names::enter(Index module) {
  while (module < module_ || module >= sizes_[module_].end) {
    path_.cut(path_.length() - sizes_[module_].segment->size() - 1);
    module_ = sizes_[module_].parent;
  }
  if (module == module_) return;
  const Index parent = sizes_[module].parent;
  if (parent != module_) enter(parent);
  path_.add(*sizes_[module].segment);
  path_.add_dot();
  module_ = module;
}

std::string Names::operator()(Index node) {
  if (node == ModuleSizes::kRoot) return {};
  const Index parent = sizes_[node].parent;
  if (parent != module_) enter(parent);
  const std::size_t length = path_.length();
  path_.add(*sizes_[node].segment);
  const std::string_view name = path_.text();
  path_.cut(length);
  return std::string(name);
}

DeviceMap named(const ModuleSizes& sizes, const NodeMap& map, bool clean, NamePlaces* places) {
  if (places != nullptr) places->clear();
  return Namer(sizes, map, clean, places).run();
}

std::optional<Device> device_at(const ModuleSizes& sizes, const NodeMap& map, Index node) {
  auto found = std::upper_bound(map.begin(), map.end(), node,
                                [](Index n, const NodeEntry& entry) { return n < entry.node; });
  if (found != map.begin() && node < sizes[(found - 1)->node].end) return (found - 1)->device;
  if (found == map.end() || found->node >= sizes[node].end) return std::nullopt;
  const Device device = found->device;
  for (; found != map.end() && found->node < sizes[node].end; ++found) {
    if (found->device != device) return std::nullopt;
  }
  return device;
}

}  // namespace haul::core
