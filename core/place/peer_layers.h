#pragma once

// The reserve of Accelerate's planner: the size of the largest layer that is still to be placed,
// and how many of the layers that had this size are left. It is refreshed only when none is left
// or when a module is split, so it can be out of date; that is part of the peer's result.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "haul/module_sizes.h"

namespace haul::core {

class PeerLayers {
 public:
  using Index = ModuleSizes::Index;

  // All of the model is queued at first. `sizes` and `no_split` must outlive it.
  PeerLayers(const ModuleSizes& sizes, std::span<const std::string> no_split);

  // Not asked of the root.
  bool splittable(Index module) const {
    const ModuleSizes::Node& node = sizes_[module];
    return node.divisible && std::find(no_split_.begin(), no_split_.end(),
                                       node.module->class_name) == no_split_.end();
  }
  Bits reserve() const { return largest_; }

  // The module leaves the queue and is looked at.
  void pop(Index node);
  // It goes back.
  void put_back(Index node);
  // It leaves the queue without being looked at, as a tied module does.
  void drop(Index node);
  void refresh();

 private:
  struct Layer {
    Bits bits;
    Index node;
  };

  void count(Index node, bool into);

  const ModuleSizes& sizes_;
  const std::span<const std::string> no_split_;
  std::vector<Layer> layers_;         // in depth-first order
  std::vector<std::uint32_t> first_;  // by node: where its layers begin; one more at the end
  std::map<Bits, std::size_t, std::greater<>> queued_;  // layers in the queue by size
  std::vector<std::uint32_t> looked_at_;                // by node: the last epoch it was popped in
  std::uint32_t epoch_ = 1;
  Bits largest_ = 0;
  std::size_t left_ = 0;
};

}  // namespace haul::core
