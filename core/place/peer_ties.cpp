#include "core/place/peer_ties.h"

#include <algorithm>

namespace haul::core {

PeerTies::PeerTies(const ModuleSizes& sizes, std::vector<std::vector<std::string>> groups,
                   bool exact)
    : sizes_(sizes), exact_(exact) {
  for (const auto& group : groups) {
    const std::size_t begin = members_.size();
    for (const std::string& name : group) {
      if (const auto node = sizes.find(name)) {
        members_.push_back({name + ".", *node, group_begin_.size()});
      }
    }
    if (members_.size() > begin) group_begin_.push_back(begin);
  }
  group_begin_.push_back(members_.size());
  for (const Member& member : members_) {
    for (std::string_view rest = member.dotted; !rest.empty();) {
      const std::size_t dot = rest.find('.');
      auto& list = groups_with_segment_[rest.substr(0, dot)];
      if (list.empty() || list.back() != member.group) list.push_back(member.group);
      rest.remove_prefix(dot + 1);
    }
  }
}

bool PeerTies::inside(const Member& member, Index node, std::string_view dotted) const {
  if (exact_) return node <= member.node && member.node < sizes_[node].end;
  return member.dotted.find(dotted) != member.dotted.npos;
}

std::vector<ModuleSizes::Index> PeerTies::outside(Index node) const {
  std::vector<Index> result;
  if (members_.empty()) return result;
  const auto look = [&](std::size_t group, std::string_view dotted) {
    const auto begin = members_.begin() + static_cast<std::ptrdiff_t>(group_begin_[group]);
    const auto end = members_.begin() + static_cast<std::ptrdiff_t>(group_begin_[group + 1]);
    if (std::none_of(begin, end, [&](const Member& m) { return inside(m, node, dotted); })) return;
    for (auto m = begin; m != end; ++m) {
      if (!inside(*m, node, dotted)) result.push_back(m->node);
    }
  };
  // A name of several parts can only be found where its last part stands whole.
  if (exact_ || sizes_[node].parent != ModuleSizes::kRoot) {
    const auto found = groups_with_segment_.find(*sizes_[node].segment);
    if (found == groups_with_segment_.end()) return result;
    const std::string dotted = sizes_.name(node) + ".";
    for (const std::size_t group : found->second) look(group, dotted);
  } else {
    const std::string dotted = sizes_.name(node) + ".";
    for (std::size_t group = 0; group + 1 < group_begin_.size(); ++group) look(group, dotted);
  }
  return result;
}

}  // namespace haul::core
