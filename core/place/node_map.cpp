#include "core/place/node_map.h"

#include <algorithm>

namespace haul::core {
namespace {

using Index = ModuleSizes::Index;

// Names entries and sorts them by name: each module's children by their own parts of the name,
// which are shorter and fewer than all names.
class Namer {
 public:
  Namer(const ModuleSizes& sizes, const NodeMap& entries, bool clean)
      : sizes_(sizes), entries_(entries), same_until_(entries.size()) {
    for (std::size_t i = entries.size(); i-- > 0;) {
      const bool same =
          clean && i + 1 < entries.size() && entries[i].device == entries[i + 1].device;
      same_until_[i] = same ? same_until_[i + 1] : static_cast<std::uint32_t>(i + 1);
    }
  }

  DeviceMap run() && {
    result_.reserve(entries_.size());
    if (!entries_.empty()) add(ModuleSizes::kRoot, 0, entries_.size());
    return whole_names_differ_ ? sorted(std::move(result_)) : std::move(result_);
  }

 private:
  // A child with its entries.
  struct Group {
    std::uint64_t start;  // of its name, so that most comparisons are of numbers
    Index child;
    std::size_t begin;
    std::size_t end;
  };

  void add(Index node, std::size_t begin, std::size_t end) {
    const bool together = end - begin > 1 && same_until_[begin] >= end;
    if (together || entries_[begin].node == node) {
      result_.emplace_back(path_, entries_[begin].device);
      return;
    }
    const std::size_t first = groups_.size();
    for (Index child = ModuleSizes::first_child(node); begin < end; child = sizes_.next(child)) {
      const std::size_t group = begin;
      while (begin < end && entries_[begin].node < sizes_[child].end) ++begin;
      if (begin > group) groups_.push_back({start_of(child), child, group, begin});
    }
    std::sort(groups_.begin() + static_cast<std::ptrdiff_t>(first), groups_.end(),
              [&](const Group& a, const Group& b) {
                if (a.start != b.start) return a.start < b.start;
                return *sizes_[a.child].segment < *sizes_[b.child].segment;
              });
    const std::size_t last = groups_.size();
    const std::size_t length = path_.size();
    for (std::size_t i = first; i < last; ++i) {
      const Group group = groups_[i];
      if (node != ModuleSizes::kRoot) path_ += '.';
      path_ += *sizes_[group.child].segment;
      add(group.child, group.begin, group.end);
      path_.resize(length);
    }
    groups_.resize(first);
  }

  std::uint64_t start_of(Index child) {
    const std::string& segment = *sizes_[child].segment;
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
  std::vector<std::uint32_t> same_until_;  // by entry: up to where the device stays the same
  std::vector<Group> groups_;              // of every module on the path
  std::string path_;
  bool whole_names_differ_ = false;
  DeviceMap result_;
};

}  // namespace

void Names::enter(Index module) {
  while (!steps_.empty() &&
         !(steps_.back().module <= module && module < sizes_[steps_.back().module].end)) {
    path_.resize(steps_.back().length);
    steps_.pop_back();
  }
  if (module == ModuleSizes::kRoot || (!steps_.empty() && steps_.back().module == module)) return;
  enter(sizes_[module].parent);
  steps_.push_back({module, path_.size()});
  path_ += *sizes_[module].segment;
  path_ += '.';
}

std::string Names::operator()(Index node) {
  if (node == ModuleSizes::kRoot) return {};
  enter(sizes_[node].parent);
  const std::string& segment = *sizes_[node].segment;
  std::string name;
  name.reserve(path_.size() + segment.size());
  name += path_;
  name += segment;
  return name;
}

DeviceMap named(const ModuleSizes& sizes, const NodeMap& map, bool clean) {
  return Namer(sizes, map, clean).run();
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
