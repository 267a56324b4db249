#include "core/place/node_map.h"

#include <algorithm>

namespace haul::core {
namespace {

using Index = ModuleSizes::Index;

// The entries below a node: how many, up to two, and their device where they agree.
struct Below {
  int count = 0;
  bool agree = true;
  Device device;

  void add(int entries, bool same, Device other) {
    if (entries == 0) return;
    if (count == 0) device = other;
    agree = agree && same && device == other;
    count = count + entries > 1 ? 2 : 1;
  }
};

struct Entry {
  Index node;
  Device device;
};

// Names entries and sorts them by name: each module's children by their own parts of the name,
// which are shorter and fewer than all names.
class Namer {
 public:
  // The entries are in the order of the nodes.
  Namer(const ModuleSizes& sizes, const std::vector<Entry>& entries)
      : sizes_(sizes), entries_(entries) {}

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
    if (entries_[begin].node == node) result_.emplace_back(path_, entries_[begin++].device);
    if (begin == end) return;
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
    for (std::size_t i = 0; i < 8; ++i) {
      start = start << 8 | (i < segment.size() ? static_cast<unsigned char>(segment[i]) : 0U);
    }
    // "a-b" is before "a.c", although "a" is before "a-b".
    for (const char c : segment) {
      if (static_cast<unsigned char>(c) <= '.') whole_names_differ_ = true;
    }
    return start;
  }

  const ModuleSizes& sizes_;
  const std::vector<Entry>& entries_;
  std::vector<Group> groups_;  // of every module on the path
  std::string path_;
  bool whole_names_differ_ = false;
  DeviceMap result_;
};

}  // namespace

std::string full_name(const ModuleSizes& sizes, Index node) {
  std::size_t length = 0;
  for (Index i = node; i != ModuleSizes::kRoot; i = sizes[i].parent) {
    length += sizes[i].segment->size() + 1;
  }
  std::string name(length == 0 ? 0 : length - 1, '.');
  std::size_t at = name.size();
  for (Index i = node; i != ModuleSizes::kRoot; i = sizes[i].parent) {
    const std::string& segment = *sizes[i].segment;
    at -= segment.size();
    segment.copy(name.data() + at, segment.size());
    if (at > 0) --at;
  }
  return name;
}

DeviceMap named(const ModuleSizes& sizes, const NodeMap& map) {
  std::vector<Entry> entries;
  for (Index i = 0; i < map.size(); ++i) {
    if (map[i]) entries.push_back({i, *map[i]});
  }
  return Namer(sizes, entries).run();
}

NodeMap cleaned(const ModuleSizes& sizes, const NodeMap& map) {
  std::vector<Below> below(map.size());
  for (Index i = static_cast<Index>(map.size()); --i > 0;) {
    Below& parent = below[sizes[i].parent];
    parent.add(below[i].count, below[i].agree, below[i].device);
    if (map[i]) parent.add(1, true, *map[i]);
  }
  NodeMap result(map.size());
  for (Index i = 0; i < map.size();) {
    const bool together = below[i].count > 1 && below[i].agree;
    result[i] = together ? below[i].device : map[i];
    i = together ? sizes[i].end : i + 1;
  }
  return result;
}

}  // namespace haul::core
