#include "runtime/generate/kv_cache.h"

#include <algorithm>
#include <array>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "haul/error.h"
#include "kernels/rotate.h"
#include "runtime/generate/kv_room.h"

namespace haul::runtime {
namespace {

using models::KeysValues;

// The tokens [begin, end) of both.
KeysValues part(const KeysValues& all, std::int64_t begin, std::int64_t end) {
  return {all.keys.narrow(2, begin, end - begin), all.values.narrow(2, begin, end - begin)};
}

KeysValues joined(const KeysValues& first, const KeysValues& second) {
  return {at::cat({first.keys, second.keys}, 2), at::cat({first.values, second.values}, 2)};
}

void write(const KeysValues& from, const KeysValues& to) {
  to.keys.copy_(from.keys);
  to.values.copy_(from.values);
}

std::int64_t tokens_of(const KeysValues& some) {
  return some.keys.size(2);
}

bool is_there(const KeysValues& some) {
  return some.keys.defined();
}

at::Tensor take_room(at::IntArrayRef sizes, const at::TensorOptions& options, KvRoom* room) {
  return room == nullptr ? at::empty(sizes, options) : room->take(sizes, options);
}

struct Extent {
  std::int64_t rows;
  std::int64_t tokens;
};

// (B, K, S, D) whose memory is (S, B, K, D).
KeysValues in_order_of_tokens(const KeysValues& like, const Extent& extent, at::Device device,
                              KvRoom* room) {
  const auto take = [&](const at::Tensor& one) {
    const std::array<std::int64_t, 4> sizes = {extent.tokens, extent.rows, one.size(1),
                                               one.size(3)};
    return take_room(sizes, one.options().device(device), room).permute({1, 2, 0, 3});
  };
  return {take(like.keys), take(like.values)};
}

}  // namespace

ModelCache::ModelCache(std::vector<std::int64_t> windows, std::int64_t capacity, KvRoom* room,
                       std::unique_ptr<KvLink> link)
    : layers_(windows.size()), capacity_(capacity), room_(room) {
  for (std::size_t i = 0; i < windows.size(); ++i) {
    layers_[i].room = windows[i] > 0 ? std::min(windows[i], capacity) : capacity;
  }
  if (link) {
    stream_.emplace(std::move(link), windows.size(), [capacity, room](const KeysValues& like) {
      return in_order_of_tokens(like, {like.keys.size(0), capacity}, like.keys.device(), room);
    });
  }
}

KeysValues ModelCache::room_for(const KeysValues& like, std::int64_t rows,
                                std::int64_t tokens) const {
  // One copy brings the first tokens of all sequences.
  if (stream_) return in_order_of_tokens(like, {rows, tokens}, at::kCPU, room_);
  const auto take = [&](const at::Tensor& one) {
    const std::array<std::int64_t, 4> sizes = {rows, one.size(1), tokens, one.size(3)};
    at::Tensor room = take_room(sizes, one.options(), room_);
    // A pass that is recorded hides what is not written yet behind a mask, which leaves no number
    // but NaN.
    return one.is_cuda() ? room.zero_() : room;
  };
  return {take(like.keys), take(like.values)};
}

// Those that the pass has.
KeysValues ModelCache::rows_of(const KeysValues& kept, const KeysValues& like) const {
  const std::int64_t rows = like.keys.size(0);
  if (rows == kept.keys.size(0)) return kept;
  return {kept.keys.narrow(0, first_row_, rows), kept.values.narrow(0, first_row_, rows)};
}

void ModelCache::look_at(std::int64_t first, std::int64_t sequences) {
  if (sequences > 0 && first != first_row_) length_ = 0;
  first_row_ = first;
  sequences_ = sequences;
}

void ModelCache::advance(std::int64_t tokens) {
  length_ += tokens;
  if (stream_) stream_->end_pass(sequences_ == 0 ? length_ : 0);
}

void ModelCache::check_room(std::int64_t tokens) const {
  const std::int64_t end = length_ + tokens;
  if (end <= capacity_) return;
  throw Error(
      ErrorKind::kUsage,
      fmt::format("the sequence grew to {} tokens, and there is room for {}", end, capacity_),
      "plan for a longer context");
}

// With its room taken.
ModelCache::Layer& ModelCache::layer_for(std::int64_t index, const KeysValues& added) {
  Layer& layer = layers_.at(static_cast<std::size_t>(index));
  check_room(tokens_of(added));
  if (!is_there(layer.kept)) {
    const std::int64_t rows = sequences_ > 0 ? sequences_ : added.keys.size(0);
    layer.kept = room_for(added, rows, layer.room);
  }
  return layer;
}

std::optional<KeysValues> ModelCache::places(std::int64_t index, const KeysValues& like) {
  const Layer& layer = layer_for(index, like);
  if (past_.defined()) return layer.kept;
  const std::int64_t end = length_ + tokens_of(like);
  if (stream_) {
    return stream_->places(static_cast<std::size_t>(index), layer.kept, like,
                           {first_row_, like.keys.size(0), length_, end});
  }
  if (end > layer.room) return std::nullopt;
  return part(rows_of(layer.kept, like), 0, end);
}

KeysValues ModelCache::extend(std::int64_t index, const KeysValues& added, bool ordered) {
  const std::optional<KeysValues> seen = places(index, added);
  if (!seen) return extend_window(layers_[static_cast<std::size_t>(index)], added, ordered);
  const KeysValues kept = past_.defined() ? *seen : part(*seen, length_, tokens_of(*seen));
  kernels::keep({added.keys, added.values, kept.keys, kept.values, past_}, added.keys);
  return *seen;
}

void ModelCache::set_past(const at::Tensor& past) {
  if (past.defined()) check_room(1);
  past_ = past;
}

bool ModelCache::keeps_all() const {
  return std::all_of(layers_.begin(), layers_.end(),
                     [&](const Layer& layer) { return layer.room == capacity_; });
}

std::vector<const void*> ModelCache::addresses() const {
  std::vector<const void*> result;
  for (const Layer& layer : layers_) {
    for (const at::Tensor* const some : {&layer.kept.keys, &layer.kept.values}) {
      result.push_back(some->defined() ? some->const_data_ptr() : nullptr);
    }
  }
  return result;
}

// The room is a ring: token i lies at i modulo its size.
KeysValues ModelCache::extend_window(const Layer& layer, const KeysValues& added, bool ordered) {
  const std::int64_t tokens = tokens_of(added);
  KeysValues kept = rows_of(layer.kept, added);
  const auto in_order = [&](std::int64_t first, std::int64_t end) {
    const std::int64_t from = first % layer.room;
    const std::int64_t straight = std::min(end - first, layer.room - from);
    KeysValues head = part(kept, from, from + straight);
    if (straight == end - first) return head;
    return joined(head, part(kept, 0, end - first - straight));
  };
  const auto put = [&](const KeysValues& some, std::int64_t first) {
    const std::int64_t from = first % layer.room;
    const std::int64_t straight = std::min(tokens_of(some), layer.room - from);
    write(part(some, 0, straight), part(kept, from, from + straight));
    const std::int64_t rest = tokens_of(some) - straight;
    if (rest > 0) write(part(some, straight, straight + rest), part(kept, 0, rest));
  };
  if (tokens == 1) {
    put(added, length_);
    if (!ordered) return kept;
    return in_order(length_ + 1 - layer.room, length_ + 1);
  }
  // The first of the new tokens looks at a whole window before it.
  const std::int64_t past = std::min(length_, layer.room - 1);
  KeysValues seen = past > 0 ? joined(in_order(length_ - past, length_), added) : added;
  const std::int64_t last = std::min(tokens, layer.room);
  put(part(added, tokens - last, tokens), length_ + tokens - last);
  return seen;
}

KeysValues ModelCache::crossed(std::int64_t layer) const {
  return layers_.at(static_cast<std::size_t>(layer)).crossed;
}

void ModelCache::keep_crossed(std::int64_t layer, const KeysValues& all) {
  KeysValues& crossed = layers_.at(static_cast<std::size_t>(layer)).crossed;
  crossed = room_for(all, all.keys.size(0), tokens_of(all));
  write(all, crossed);
}

void ModelCache::repeat(std::int64_t times) {
  if (stream_) stream_->settle();
  // All of it is copied out and let go first, so that the room holds what comes.
  std::vector<Layer> before = std::exchange(layers_, std::vector<Layer>(layers_.size()));
  for (Layer& layer : before) {
    if (is_there(layer.kept)) layer.kept = part(layer.kept, 0, std::min(length_, layer.room));
    for (KeysValues* some : {&layer.kept, &layer.crossed}) {
      if (is_there(*some)) *some = {some->keys.clone(), some->values.clone()};
    }
  }
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto put = [&](const KeysValues& copy, std::int64_t tokens) {
      const KeysValues more{copy.keys.repeat_interleave(times, 0),
                            copy.values.repeat_interleave(times, 0)};
      KeysValues room = room_for(more, more.keys.size(0), tokens);
      write(more, part(room, 0, tokens_of(more)));
      return room;
    };
    const Layer layer = std::exchange(before[i], {});
    layers_[i].room = layer.room;
    if (is_there(layer.kept)) layers_[i].kept = put(layer.kept, layer.room);
    if (is_there(layer.crossed)) {
      layers_[i].crossed = put(layer.crossed, tokens_of(layer.crossed));
    }
  }
}

void ModelCache::reorder(const at::Tensor& rows) {
  if (stream_) stream_->settle();
  for (Layer& layer : layers_) {
    if (!is_there(layer.kept)) continue;
    const KeysValues written = part(layer.kept, 0, std::min(length_, layer.room));
    const at::Tensor index = rows.to(written.keys.device());
    write({written.keys.index_select(0, index), written.values.index_select(0, index)}, written);
  }
}

Bytes ModelCache::bytes() const {
  Bytes sum = 0;
  for (const Layer& layer : layers_) {
    for (const KeysValues* some : {&layer.kept, &layer.crossed}) {
      if (some->keys.defined()) sum += some->keys.nbytes() + some->values.nbytes();
    }
  }
  return sum;
}

}  // namespace haul::runtime
