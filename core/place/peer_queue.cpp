#include "core/place/peer_queue.h"

namespace haul::core {

PeerQueue::PeerQueue(const ModuleSizes& sizes)
    : sizes_(sizes),
      next_(sizes.nodes().size(), kEnd),
      previous_(sizes.nodes().size(), kEnd),
      queued_(sizes.nodes().size()) {
  insert_parts(kEnd, ModuleSizes::kRoot);
  for (Index i = ModuleSizes::first_child(0); i != sizes[0].end; i = sizes.next(i)) {
    if (sizes[i].kind == ModuleSizes::Kind::kBuffer) insert(kEnd, i);
  }
}

void PeerQueue::insert(Index before, Index node) {
  const Index previous = previous_[before];
  next_[previous] = node;
  previous_[node] = previous;
  next_[node] = before;
  previous_[before] = node;
  queued_[node] = true;
}

void PeerQueue::insert_parts(Index before, Index module) {
  for (Index i = ModuleSizes::first_child(module); i != sizes_[module].end; i = sizes_.next(i)) {
    if (sizes_[i].kind != ModuleSizes::Kind::kBuffer) insert(before, i);
  }
}

void PeerQueue::remove(Index node) {
  next_[previous_[node]] = next_[node];
  previous_[next_[node]] = previous_[node];
  queued_[node] = false;
}

void PeerQueue::expand(Index module) {
  const Index before = next_[module];
  remove(module);
  insert_parts(before, module);
}

}  // namespace haul::core
