#pragma once

// What a model is made of, without a tensor: a tree of modules with their parameters and buffers
// in the order in which the model registers them, the names that share one tensor, and the classes
// that must not be split over devices. Values; nothing here throws unless it says so.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "haul/bytes.h"
#include "haul/dtype.h"

namespace haul {

using Shape = std::vector<std::int64_t>;

inline std::uint64_t element_count(const Shape& shape) {
  std::uint64_t count = 1;
  for (const std::int64_t size : shape) count *= static_cast<std::uint64_t>(size);
  return count;
}
// Rounded up to whole bytes.
Bytes byte_count(Dtype dtype, const Shape& shape);

struct ParameterSpec {
  std::string name;  // without the module's path
  Dtype dtype = Dtype::kF32;
  Shape shape;
};

struct BufferSpec {
  std::string name;
  Dtype dtype = Dtype::kF32;
  Shape shape;
  bool persistent = true;  // part of the checkpoint
};

struct ModuleSpec {
  std::string name;        // its own segment of the path; empty for the root
  std::string class_name;  // as the peer's library calls it: "LlamaDecoderLayer", "Linear"
  std::vector<ParameterSpec> parameters;
  std::vector<BufferSpec> buffers;
  std::vector<ModuleSpec> children;
};

// The numbers that KV cache and activations depend on. Zero where the model has no such thing.
// B batch, T tokens, C hidden, H heads, K kv heads, D head size, V vocabulary, L layers.
struct Dimensions {
  std::int64_t layers = 0;           // L, decoder (or only) layers
  std::int64_t encoder_layers = 0;   // of an encoder-decoder model
  std::int64_t hidden = 0;           // C
  std::int64_t heads = 0;            // H
  std::int64_t kv_heads = 0;         // K
  std::int64_t head_size = 0;        // D
  std::int64_t intermediate = 0;     // width of the MLP
  bool gated_mlp = false;            // gate and up projections instead of one
  bool fused_qkv = false;            // one projection gives queries, keys and values
  std::int64_t vocabulary = 0;       // V
  std::int64_t max_positions = 0;    // 0: unlimited
  std::int64_t sliding_window = 0;   // tokens kept by windowed layers; 0: all
  std::int64_t windowed_layers = 0;  // how many of L use the window
  bool causal = false;               // decodes token by token with a KV cache
  bool score_bias = false;           // adds a bias to attention scores: relative positions, ALiBi
};

struct Description {
  ModuleSpec root;
  // Each group lists the full names that share one tensor, in registration order; it is counted
  // under the first.
  std::vector<std::vector<std::string>> tied;
  std::vector<std::string> no_split;  // class names
  std::string architecture;           // "LlamaForCausalLM"; empty when unknown
  std::optional<Dimensions> dimensions;
};

// A tensor of a description by its full dotted name.
struct NamedTensor {
  std::string name;
  Dtype dtype = Dtype::kF32;
  Shape shape;
  bool is_buffer = false;
  bool persistent = true;
};

// All parameters, then all buffers, each in registration order (depth first), every name of a tied
// group included: what a model's state dict lists, plus non-persistent buffers.
std::vector<NamedTensor> all_tensors(const Description& description);

// The dtype of most weights, as bytes go; BF16 where there are none of 16 bits or more.
Dtype main_dtype(const Description& description);

// The tree file of `haul tree --json` and `haul map --tree`. Reading throws Error(kCorrupt) with
// the place in the tree; `source` names the file in messages.
Description read_tree(std::string_view json, std::string_view source);
std::string write_tree(const Description& description);

}  // namespace haul
