#pragma once

// The keys and values of all layers, in room that is taken once for the longest that the sequences
// may become; memory that is not written to is not used. Layers with a window keep no more than
// that.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "haul/bytes.h"
#include "models/blocks/kv_cache.h"
#include "runtime/generate/kv_stream.h"

namespace haul::runtime {

class KvRoom;

class ModelCache final : public models::KvCache {
 public:
  // `windows` gives for each layer how many tokens it looks at; 0: all. Its memory is of `room`,
  // which outlives it, or without one of torch. With a link it lies in RAM and comes over that; no
  // layer has a window then.
  ModelCache(std::vector<std::int64_t> windows, std::int64_t capacity, KvRoom* room = nullptr,
             std::unique_ptr<KvLink> link = nullptr);

  std::optional<models::KeysValues> places(std::int64_t layer,
                                           const models::KeysValues& like) override;
  models::KeysValues extend(std::int64_t layer, const models::KeysValues& added,
                            bool ordered) override;
  std::int64_t length() const override { return length_; }
  at::Tensor replayed_past() const override { return past_; }
  models::KeysValues crossed(std::int64_t layer) const override;
  void keep_crossed(std::int64_t layer, const models::KeysValues& all) override;

  // From now on a pass of one token is one to be recorded, with this number on the device; until
  // it is undefined. Throws Error(kUsage) if there is no room for another token.
  void set_past(const at::Tensor& past);
  // Whether no layer has a window that is smaller than the room: only then is set_past() allowed.
  bool keeps_all() const;
  // Where its layers lie.
  std::vector<const void*> addresses() const;

  // Before each pass: those of the sequences that it has, from this one on; `sequences` are all of
  // them, 0: as many as the pass has. Others than before begin anew.
  void look_at(std::int64_t first, std::int64_t sequences);
  // After each pass: how many tokens it brought.
  void advance(std::int64_t tokens);
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
  models::KeysValues room_for(const models::KeysValues& like, std::int64_t rows,
                              std::int64_t tokens) const;
  models::KeysValues rows_of(const models::KeysValues& kept, const models::KeysValues& like) const;
  models::KeysValues extend_window(const Layer& layer, const models::KeysValues& added,
                                   bool ordered);

  std::vector<Layer> layers_;
  std::int64_t capacity_;
  KvRoom* room_;
  std::int64_t length_ = 0;
  std::int64_t first_row_ = 0;
  std::int64_t sequences_ = 0;  // 0: those of the pass
  at::Tensor past_;
  std::optional<KvStream> stream_;  // last: copies to and from the layers end with it
};

}  // namespace haul::runtime
