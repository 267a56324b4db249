#include "core/place/peer_layers.h"

namespace haul::core {

PeerLayers::PeerLayers(const ModuleSizes& sizes, std::span<const std::string> no_split)
    : sizes_(sizes),
      no_split_(no_split),
      first_(sizes.nodes().size() + 1),
      looked_at_(sizes.nodes().size()) {
  const auto& nodes = sizes.nodes();
  layers_.reserve(nodes.size() / 2);
  // Nobody asks for the layers of a layer's parts.
  for (Index i = ModuleSizes::first_child(0); i < nodes.size();) {
    first_[i] = static_cast<std::uint32_t>(layers_.size());
    const bool is_layer = nodes[i].module != nullptr && !splittable(i);
    if (is_layer) layers_.push_back({nodes[i].bits, i});
    i = is_layer ? nodes[i].end : i + 1;
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
    const Bits bits = layers_[begin].bits;
    while (l < end && layers_[l].bits == bits) ++l;
    const auto queued = queued_.try_emplace(bits, 0).first;
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
  const std::span layers =
      std::span(layers_).subspan(first_[node], first_[sizes_[node].end] - first_[node]);
  if (sizes_[node].module == nullptr) {
    if (epoch_ == kFirstEpoch) cross_off(node, sizes_[node].bits);
  } else {
    for (const Layer& layer : layers) cross_off(layer.node, layer.bits);
  }
  if (left_ == 0) refresh();
  looked_at_[node] = epoch_;
  for (const Layer& layer : layers) looked_at_[layer.node] = epoch_;
}

void PeerLayers::put_back(Index node) {
  count(node, true);
}

void PeerLayers::drop(Index node) {
  count(node, false);
}

}  // namespace haul::core
