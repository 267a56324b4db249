#pragma once

// What attention layers remember of the tokens before: their keys and values. One thread.

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

namespace haul::models {

struct KeysValues {
  at::Tensor keys;    // (B, K, S, D)
  at::Tensor values;  // likewise
};

class KvCache {
 public:
  virtual ~KvCache() = default;

  // What a layer may look at in a pass, once its tokens, whose keys and values are like these, have
  // been written there: they are the last, or in a pass that is recorded, which has all of the
  // room, the next behind those that there are. Nothing where it could not be looked at as it lies:
  // extend() then.
  virtual std::optional<KeysValues> places(std::int64_t layer, const KeysValues& like) = 0;

  // Adds the keys and values of a pass's tokens to a layer. Returns what the layer may look at: the
  // last S of all tokens, the new ones among them; in their order if that is asked for.
  virtual KeysValues extend(std::int64_t layer, const KeysValues& added, bool ordered) = 0;
  // Tokens that were there before this pass.
  virtual std::int64_t length() const = 0;
  // Of a pass of a single token that is recorded on a GPU, and run again when there are more
  // tokens: how many there are before it, a number on the device. Of others undefined.
  virtual at::Tensor replayed_past() const { return {}; }
  // For layers that look at another sequence, which is the same in every pass: what was kept, or
  // undefined tensors; and what to keep.
  virtual KeysValues crossed(std::int64_t layer) const = 0;
  virtual void keep_crossed(std::int64_t layer, const KeysValues& all) = 0;
};

}  // namespace haul::models
