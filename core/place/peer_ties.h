#pragma once

// Which tied tensors pull other modules along when Accelerate's planner looks at a module. The peer
// tests whether a name is inside a module by looking for the module's name anywhere in it ("1." in
// "11.weight"); `exact` asks for the real tree instead.

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "haul/module_sizes.h"

namespace haul::core {

class PeerTies {
 public:
  using Index = ModuleSizes::Index;

  PeerTies(const ModuleSizes& sizes, std::vector<std::vector<std::string>> groups, bool exact);

  // Tensors that share with one inside `node` and are outside of it: group by group.
  std::vector<Index> outside(Index node) const;

 private:
  struct Member {
    std::string dotted;  // full name and a dot
    Index node;
    std::size_t group;
  };

  bool inside(const Member& member, Index node, std::string_view dotted) const;

  const ModuleSizes& sizes_;
  bool exact_;
  std::vector<Member> members_;           // group by group
  std::vector<std::size_t> group_begin_;  // one more at the end
  std::unordered_map<std::string_view, std::vector<std::size_t>> groups_with_segment_;
};

}  // namespace haul::core
