#pragma once

// A model of a known family: a stock module that computes what its description describes. Its
// tensors have the names of the description. One thread at a time.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "core/describe/config_reader.h"
#include "haul/description.h"
#include "models/blocks/kv_cache.h"

namespace haul::models {

// B batch, T tokens of this pass, S those before it and these.
struct Inputs {
  at::Tensor ids;  // (B, T)
  at::Tensor positions =
      {};                    // (B or 1, T); undefined: one after another from the cache's length on
  at::Tensor attended = {};  // (B, S) bool, false for padding; undefined: all are tokens
  at::Tensor types = {};     // (B, T): which sequence of a pair; undefined: the first
  KvCache* cache = nullptr;  // of the tokens before; it takes these in
  // Where these are some of the sequences in the cache: the place of their first, and how many
  // there are. 0: these are all.
  std::int64_t first_row = 0;
  std::int64_t sequences = 0;
  std::int64_t last = 0;  // logits of so many tokens at the end; 0: of all
  // Of a model with an encoder: what it gave, and its padding.
  at::Tensor encoded = {};           // (B, E, C)
  at::Tensor encoded_attended = {};  // (B, E)

  Inputs to(at::Device device) const;
};

// A run of a model's layers.
struct Layers {
  std::size_t begin = 0;
  std::size_t end = 0;
};

class Model : public torch::nn::Module {
 public:
  // By its head: logits (B, T, V), hidden states (B, T, C), or scores of labels (B, labels).
  virtual at::Tensor forward(const Inputs& inputs) = 0;
  // (B, T, C) before any head; of a model with an encoder, what that gives.
  virtual at::Tensor hidden(const Inputs& inputs) { return forward(inputs); }
  // The names of its layers, in their order, where a pass may be cut between them; else nothing.
  virtual std::vector<std::string> layers() const { return {}; }
  // The part of forward() in a run of layers. The first run begins with the ids, any other with
  // `x` (B, T, C), which the run before gave; the last ends with what forward() gives.
  virtual at::Tensor forward_part(const Inputs& inputs, const Layers& part, const at::Tensor& x);
  // Of a model with an encoder: ids and padding to what the decoder looks at.
  virtual at::Tensor encode(const Inputs& inputs);
  // By layer: how many tokens it looks at, itself included; 0, or nothing: at all before it.
  virtual std::vector<std::int64_t> windows() const { return {}; }
  // Whether the work of a pass of one token depends on numbers of the device alone, but for windows
  // that are reached: it may then be recorded once and run again. See KvCache::replayed_past().
  virtual bool can_be_replayed() const { return false; }
  // The tokens that a sequence can have at all; 0: no limit but what the model was trained for.
  virtual std::int64_t most_positions() const { return 0; }
  // Parts of names of modules that need F32 where the others are F16.
  virtual std::vector<std::string> wide_in_f16() const { return {}; }
};

// Builds the model that `description` describes from the same config. The weights get the values
// that torch gives, or none inside EmptyWeights. Throws Error(kUnsupported) for an architecture, or
// a choice in its config, that haul cannot compute, and says which it can.
std::shared_ptr<Model> make_model(const core::ConfigReader& config, const Description& description);

// The architectures that make_model() knows.
std::vector<std::string_view> known_architectures();

}  // namespace haul::models
