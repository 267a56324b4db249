#pragma once

// The keys and values of all layers, in room that is taken once for the longest that the sequences
// may become; memory that is not written to is not used. Layers with a window keep no more than
// that.

#include <cstdint>
#include <vector>

#include "haul/bytes.h"
#include "models/blocks/kv_cache.h"

namespace haul::runtime {

class KvRoom;

class ModelCache final : public models::KvCache {
 public:
  // `windows` gives for each layer how many tokens it looks at; 0: all. Its memory is of `room`,
  // which outlives it, or without one of torch.
  ModelCache(std::vector<std::int64_t> windows, std::int64_t capacity, KvRoom* room = nullptr);

  std::optional<models::KvPlaces> places(std::int64_t layer,
                                         const models::KeysValues& like) override;
  models::KeysValues extend(std::int64_t layer, const models::KeysValues& added,
                            bool ordered) override;
  std::int64_t length() const override { return length_; }
  models::Replay replay() const override;
  models::KeysValues crossed(std::int64_t layer) const override;
  void keep_crossed(std::int64_t layer, const models::KeysValues& all) override;

  // From now on a pass of one token is as a Replay wants it, with this number on the device; until
  // it is undefined. Throws Error(kUsage) if there is no room for another token.
  void set_past(const at::Tensor& past);
  // Whether no layer has a window that is smaller than the room: only then is set_past() allowed.
  bool keeps_all() const;
  // Where its layers lie.
  std::vector<const void*> addresses() const;

  // After each pass: how many tokens it brought.
  void advance(std::int64_t tokens) { length_ += tokens; }
  // Each sequence becomes so many of the same, side by side.
  void repeat(std::int64_t times);
  // Sequence i becomes what sequence rows[i] was. Only between those that look at the same other
  // sequence: what is crossed stays.
  void reorder(const at::Tensor& rows);
  // What it holds room for.
  Bytes bytes() const;

 private:
  struct Layer {
    std::int64_t room = 0;  // tokens
    models::KeysValues kept;
    models::KeysValues crossed;
  };

  void check_room(std::int64_t tokens) const;
  Layer& layer_for(std::int64_t index, const models::KeysValues& added);
  models::KeysValues room_for(const models::KeysValues& like, std::int64_t tokens) const;
  models::KeysValues extend_window(Layer& layer, const models::KeysValues& added, bool ordered);

  std::vector<Layer> layers_;
  std::int64_t capacity_;
  KvRoom* room_;
  std::int64_t length_ = 0;
  at::Tensor past_;
};

}  // namespace haul::runtime
