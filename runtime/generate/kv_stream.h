#pragma once

// Keys and values that lie in RAM and are looked at on a GPU. Two slots there hold the layer at
// hand and the next one, which comes meanwhile; what a pass adds to a layer goes back to RAM when
// the next is asked for. One thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "haul/bytes.h"
#include "models/blocks/kv_cache.h"
#include "runtime/tiers/gpu.h"

namespace haul::runtime {

// Copies between pinned RAM and a GPU, one after another and beside the GPU's work.
class KvLink {
 public:
  virtual ~KvLink() = default;

  // Copies from now on come after the work that the GPU has been given so far.
  virtual void after_work() = 0;
  // As CopyStream::copy_rows.
  virtual void copy(void* to, Bytes to_step, const void* from, Bytes from_step, Bytes width,
                    Bytes count) = 0;
  virtual GpuPoint point() = 0;
  // The GPU's work from now on comes after the point.
  virtual void wait(const GpuPoint& point) = 0;
  // Blocks until all copies have ended.
  virtual void settle() = 0;
};
std::unique_ptr<KvLink> make_kv_link(int gpu);

class KvStream {
 public:
  // What a pass looks at in each layer: the tokens [0, end) of some sequences, those from `past` on
  // its own.
  struct Span {
    std::int64_t first_row = 0;
    std::int64_t rows = 0;
    std::int64_t past = 0;
    std::int64_t end = 0;
  };
  // Makes a slot on the device of `like` for so many sequences as that has and all tokens, (B, K,
  // S, D) whose memory is (S, B, K, D).
  using MakeSlot = std::function<models::KeysValues(const models::KeysValues& like)>;

  KvStream(std::unique_ptr<KvLink> link, std::size_t layers, MakeSlot make_slot);

  // The places of a layer's tokens on the GPU, with those before them on their way there. `kept` is
  // all of the layer in RAM, which lies like a slot; layers are asked for in their order.
  models::KeysValues places(std::size_t layer, const models::KeysValues& kept,
                            const models::KeysValues& like, const Span& span);
  // The next pass looks at the first so many tokens of all sequences, if that is known: the first
  // layer is brought for it. 0: it is not.
  void end_pass(std::int64_t tokens);
  // All that was added lies in RAM when this returns, and what lies there may change.
  void settle();

 private:
  struct Slot {
    models::KeysValues memory;
    std::optional<std::size_t> layer;
    Span held;       // [0, end) of it
    GpuPoint ready;  // then it holds that, and nothing of it is on its way to RAM
  };
  struct Added {
    std::size_t layer;
    Span span;
  };

  Slot& slot_of(std::size_t layer) { return slots_[layer % slots_.size()]; }
  void bring(std::size_t layer, const Span& span, const models::KeysValues& like);
  void write_back();
  void copy(const models::KeysValues& to, const models::KeysValues& from);

  std::vector<models::KeysValues> kept_;  // by layer, where it is known
  std::array<Slot, 2> slots_;
  MakeSlot make_slot_;
  std::optional<Added> added_;    // not in RAM yet
  std::unique_ptr<KvLink> link_;  // last: its end waits for the copies
};

}  // namespace haul::runtime
