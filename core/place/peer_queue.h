#pragma once

// What Accelerate's planner has still to place, in order: disjoint nodes of the tree. Taking from
// and adding to the front, and expanding or removing anywhere, take constant time.

#include <vector>

#include "haul/module_sizes.h"

namespace haul::core {

class PeerQueue {
 public:
  using Index = ModuleSizes::Index;
  static constexpr Index kEnd = ModuleSizes::kRoot;

  // The root's parameters, children and buffers, in this order.
  explicit PeerQueue(const ModuleSizes& sizes);

  bool empty() const { return next_[kEnd] == kEnd; }
  bool contains(Index node) const { return queued_[node]; }
  Index front() const { return next_[kEnd]; }
  Index after(Index node) const { return next_[node]; }

  void push_front(Index node) { insert(next_[kEnd], node); }
  void remove(Index node);
  // Parameters and child modules take the module's place. Its direct buffers do not: the peer loses
  // them here.
  void expand(Index module);
  // The same in front, for a module that is not queued.
  void push_front_parts(Index module) { insert_parts(next_[kEnd], module); }

 private:
  void insert(Index before, Index node);
  void insert_parts(Index before, Index module);

  const ModuleSizes& sizes_;
  std::vector<Index> next_;  // kEnd stands before the first and after the last
  std::vector<Index> previous_;
  std::vector<bool> queued_;
};

}  // namespace haul::core
