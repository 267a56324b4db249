#pragma once

// What a model needs, before a byte of it is loaded: one table of bytes, each entry with its
// reason, for inference and for training. Pure, any thread. Functions throw Error(kUnsupported)
// when a size does not fit in 64 bits and Error(kUsage) for a request with a number below one.
//
// One alphabet: B batch, T tokens, N = B·T, C hidden, H heads, K kv heads, D head size, I width of
// the MLP, V vocabulary, L layers; s bytes of an element of the run's dtype.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "haul/bytes.h"
#include "haul/description.h"
#include "haul/dtype.h"

namespace haul {

enum class Tag {
  kWeights,        // what the run computes with, and buffers
  kMasterWeights,  // float32 parameters beside half-precision copies
  kGradients,
  kOptimizer,
  kKv,
  kActivations,
  kLogits,
  kWorkspace,
};
std::string_view name(Tag tag);

struct TableEntry {
  Tag tag = Tag::kWeights;
  Bytes bytes = 0;
};
Bytes total_bytes(std::span<const TableEntry> table);

struct InferenceRequest {
  Dtype dtype = Dtype::kBF16;
  std::int64_t context = 4096;  // T, prompt and answer together
  std::int64_t batch = 1;       // B
};

// What a decoder reads of a batch's prompts at once: so many of the sequences, and of each so many
// tokens. Some thousand together keep a GPU busy, and the memory that more would take is better
// used for a larger batch.
struct PromptPart {
  std::int64_t rows = 1;
  std::int64_t tokens = 1;
};
// The longest has so many tokens; batch and context are those that were planned for.
PromptPart prompt_part(std::int64_t batch, std::int64_t context, std::int64_t longest);
// Of a part after the first, in one layer at once.
inline constexpr std::int64_t kTokensThatLookBack = 512;

// Weights, KV cache, activations, logits and workspace at the peak of a generation, or of one pass
// for a model that does not generate. Entries of no bytes are left out, and what depends on
// dimensions is absent when the description has none.
std::vector<TableEntry> inference_table(const Description& description,
                                        const InferenceRequest& request);

// Parameters and buffers in a run of this dtype. Float tensors of 16 bits and more are converted,
// smaller ones, integers and bools stay as they are.
Bytes weight_bytes(const Description& description, Dtype dtype);

// One layer's keys and values, 2·K·D·T·B·s; a windowed layer keeps min(T, window) tokens. A decoder
// beside an encoder keeps as much again for its T input tokens.
Bytes kv_layer_bytes(const Dimensions& dimensions, const InferenceRequest& request, bool windowed);
// Of all layers.
Bytes kv_bytes(const Dimensions& dimensions, const InferenceRequest& request);

// The largest set of temporaries that a layer holds at one time, its input included. With n = B
// times the tokens that pass at once (the chunk for a decoder, T for an encoder):
//   n·s·(4C + 2D + max(5HD + 3KD, m·I)), m = 3 for a gated MLP and 2 else, with who looks at whom
//   and copies of what earlier parts left on the side of the attention; and for models that add a
//   bias to the scores (2·s·H + 24)·tokens·T for it, of each prompt at once.
// Layers run one after another, so this is the model's figure too.
Bytes inference_activation_bytes(const Dimensions& dimensions, const InferenceRequest& request);

// The head's output: the last token's logits in the run's dtype and in float32, B·V·(s + 4), or all
// tokens' for a model that does not generate. Nothing without a head over the vocabulary.
Bytes inference_logits_bytes(const Description& description, const InferenceRequest& request);

// What a pass over a token of each sequence, recorded on a GPU for all that follow, holds of its
// own: these two, and the parts in which it looks at the context.
// REQUIRES: the description has dimensions.
Bytes recorded_pass_bytes(const Description& description, const InferenceRequest& request);

enum class TrainMode { kFull, kLora };
enum class Optimizer { kAdamW, kAdam8Bit, kAdafactor, kSgd };
enum class Precision { kFp32, kBf16, kFp16 };

struct TrainingRequest {
  TrainMode mode = TrainMode::kFull;
  Optimizer optimizer = Optimizer::kAdamW;
  Precision precision = Precision::kBf16;
  std::int64_t sequence = 1024;  // T
  std::int64_t batch = 1;        // B
  bool recompute = false;        // keep each layer's input and compute the rest again
  std::int64_t lora_rank = 8;
};

// Full training in half precision keeps float32 parameters (master weights) and the half copies
// that matrix products make of them; LoRA keeps the model in the run's dtype and trains float32
// adapters. Gradients and optimizer state are those of the float32 parameters that are trained.
std::vector<TableEntry> training_table(const Description& description,
                                       const TrainingRequest& request);

// Parameters that LoRA adds: rank·(in + out) for every linear layer but the output head.
std::uint64_t lora_parameter_count(const Description& description, std::int64_t rank);

// The optimizer's state for one trained tensor: AdamW 8 bytes an element; 8-bit Adam 2 bytes and a
// float32 scale for each 256 of either moment (8 bytes below 4,096 elements); Adafactor 4 bytes for
// each row and each column (for each element of a vector); SGD none.
Bytes optimizer_bytes(Optimizer optimizer, const Shape& shape);

// What one layer keeps for its backward pass, with fused attention (no T² matrix) and no dropout:
//   N·(C·(2r + c·s) + s·(2HD + 2KD) + 4H + s·m·I), m = 4 for a gated MLP and 2 else.
// r is 4 in full training, whose residual stream is float32, and s with LoRA. Where r and s differ,
// each product casts the norm's output for itself: c is 3 for queries, keys and values (1 when one
// projection gives them) and 2 for a gated MLP (1 else); where they do not, c is 2 in all. A
// decoder's cross attention adds its norm and products: N·(C·(r + c·s) + s·(2HD + 2KD) + 4H).
Bytes training_layer_bytes(const Dimensions& dimensions, const TrainingRequest& request,
                           bool cross_attention);

}  // namespace haul
