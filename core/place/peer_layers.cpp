#include "core/place/peer_layers.h"

#include <algorithm>

namespace haul::core {

PeerLayers::PeerLayers(const ModuleSizes& sizes, std::span<const std::string> no_split)
    : sizes_(sizes),
      splittable_(sizes.nodes().size()),
      first_(sizes.nodes().size() + 1),
      looked_at_(sizes.nodes().size()) {
  const auto& nodes = sizes.nodes();
  for (Index i = 1; i < nodes.size(); ++i) {
    if (nodes[i].module != nullptr) splittable_[nodes[i].parent] = true;
  }
  for (Index i = 1; i < nodes.size() && !no_split.empty(); ++i) {
    if (!splittable_[i]) continue;
    splittable_[i] =
        std::find(no_split.begin(), no_split.end(), nodes[i].module->class_name) == no_split.end();
  }
  Index skip_to = 0;  // the end of the layer that we are in
  for (Index i = 0; i < nodes.size(); ++i) {
    first_[i] = static_cast<std::uint32_t>(layers_.size());
    if (i < skip_to || nodes[i].module == nullptr || splittable_[i] || i == ModuleSizes::kRoot) {
      continue;
    }
    layers_.push_back(i);
    layer_bits_.push_back(nodes[i].bits);
    skip_to = nodes[i].end;
  }
  first_[nodes.size()] = static_cast<std::uint32_t>(layers_.size());
  count(ModuleSizes::kRoot, true);
  refresh();
  // Tensors of the root stand in the queue themselves; only this first look counts them.
  for (Index i = ModuleSizes::first_child(0); i != nodes[0].end; i = sizes.next(i)) {
    if (nodes[i].module != nullptr) continue;
    if (nodes[i].bits > largest_) {
      largest_ = nodes[i].bits;
      left_ = 0;
    }
    if (nodes[i].bits == largest_) ++left_;
  }
}

void PeerLayers::count(Index node, bool into) {
  const std::uint32_t end = first_[sizes_[node].end];
  for (std::uint32_t l = first_[node]; l < end;) {
    const std::uint32_t begin = l;
    while (l < end && layer_bits_[l] == layer_bits_[begin]) ++l;
    const auto queued = queued_.try_emplace(layer_bits_[begin], 0).first;
    if (into) {
      queued->second += l - begin;
    } else if ((queued->second -= l - begin) == 0) {
      queued_.erase(queued);
    }
  }
}

void PeerLayers::refresh() {
  ++epoch_;
  largest_ = queued_.empty() ? 0 : queued_.begin()->first;
  left_ = queued_.empty() ? 0 : queued_.begin()->second;
}

void PeerLayers::pop(Index node) {
  constexpr std::uint32_t kFirstEpoch = 2;
  const auto cross_off = [&](Index layer, Bits bits) {
    if (bits == largest_ && looked_at_[layer] != epoch_) --left_;
  };
  count(node, false);
  if (sizes_[node].module == nullptr) {
    if (epoch_ == kFirstEpoch) cross_off(node, sizes_[node].bits);
  } else {
    for (std::uint32_t l = first_[node]; l < first_[sizes_[node].end]; ++l) {
      cross_off(layers_[l], layer_bits_[l]);
    }
  }
  if (left_ == 0) refresh();
  looked_at_[node] = epoch_;
  for (std::uint32_t l = first_[node]; l < first_[sizes_[node].end]; ++l) {
    looked_at_[layers_[l]] = epoch_;
  }
}

void PeerLayers::put_back(Index node) {
  count(node, true);
}

void PeerLayers::drop(Index node) {
  count(node, false);
}

}  // namespace haul::core
