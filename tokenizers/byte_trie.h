#pragma once

// A set of byte strings with a number each, walked byte by byte. Built once; immutable.

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace haul::tokenizers {

class ByteTrie {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  ByteTrie() = default;
  // The last of equal keys wins.
  explicit ByteTrie(std::vector<std::pair<std::string_view, std::uint32_t>> keys);

  static constexpr std::uint32_t root() { return 0; }
  // kNone when no key continues so.
  std::uint32_t child(std::uint32_t node, unsigned char byte) const {
    if (node == 0) return roots_[byte];
    const Node& parent = nodes_[node];
    for (std::uint32_t i = parent.first; i < nodes_[node + 1].first; ++i) {
      if (labels_[i] >= byte) return labels_[i] == byte ? i + 1 : kNone;
    }
    return kNone;
  }
  // The number of the key that ends here, or kNone.
  std::uint32_t value(std::uint32_t node) const { return nodes_[node].value; }

 private:
  // Nodes in breadth-first order: the children of a node are edges first … next node's first, and
  // edge i leads to node i + 1.
  struct Node {
    std::uint32_t first = 0;
    std::uint32_t value = kNone;
  };
  std::vector<Node> nodes_ = std::vector<Node>(2);
  std::vector<unsigned char> labels_;
  std::vector<std::uint32_t> roots_ = std::vector<std::uint32_t>(256, kNone);
};

}  // namespace haul::tokenizers
