#include "tokenizers/byte_trie.h"

#include <algorithm>

namespace haul::tokenizers {

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, std::uint32_t>> keys) {
  std::stable_sort(keys.begin(), keys.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  struct Range {
    std::uint32_t begin, end, depth;
  };
  std::vector<Range> queue{{0, static_cast<std::uint32_t>(keys.size()), 0}};
  nodes_.clear();
  for (std::size_t i = 0; i < queue.size(); ++i) {
    Range range = queue[i];
    Node node;
    node.first = static_cast<std::uint32_t>(labels_.size());
    for (; range.begin < range.end && keys[range.begin].first.size() == range.depth;
         ++range.begin) {
      node.value = keys[range.begin].second;
    }
    nodes_.push_back(node);
    while (range.begin < range.end) {
      const char label = keys[range.begin].first[range.depth];
      std::uint32_t end = range.begin + 1;
      while (end < range.end && keys[end].first[range.depth] == label) ++end;
      labels_.push_back(static_cast<unsigned char>(label));
      queue.push_back({range.begin, end, range.depth + 1});
      range.begin = end;
    }
  }
  nodes_.push_back({static_cast<std::uint32_t>(labels_.size()), kNone});
  for (std::uint32_t i = 0; i < nodes_[1].first; ++i) roots_[labels_[i]] = i + 1;
}

}  // namespace haul::tokenizers
