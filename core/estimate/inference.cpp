#include <algorithm>

#include "core/estimate/count.h"
#include "core/estimate/linear_layers.h"
#include "core/estimate/workspace.h"
#include "haul/error.h"
#include "haul/estimate.h"

namespace haul {
namespace {

using core::Count;

void check(const InferenceRequest& request) {
  if (request.context < 1 || request.batch < 1) {
    throw Error(ErrorKind::kUsage, "context and batch are at least 1");
  }
}

int element_bytes(const InferenceRequest& request) {
  return (bits(request.dtype) + 7) / 8;
}

constexpr std::int64_t kOfOne = 2048;     // tokens of a prompt, at once
constexpr std::int64_t kTogether = 8192;  // of several

// Tokens of prompts, whatever their lengths.
std::int64_t most_at_once(std::int64_t batch, std::int64_t context) {
  const std::int64_t each = std::min(context, kOfOne);
  return batch > kTogether / each ? kTogether : batch * each;
}

}  // namespace

PromptPart prompt_part(std::int64_t batch, std::int64_t context, std::int64_t longest) {
  const std::int64_t tokens = std::clamp<std::int64_t>(longest, 1, kOfOne);
  return {std::max<std::int64_t>(1, most_at_once(batch, context) / tokens), tokens};
}

std::string_view name(Tag tag) {
  switch (tag) {
    case Tag::kWeights:
      return "weights";
    case Tag::kMasterWeights:
      return "master_weights";
    case Tag::kGradients:
      return "gradients";
    case Tag::kOptimizer:
      return "optimizer";
    case Tag::kKv:
      return "kv";
    case Tag::kActivations:
      return "activations";
    case Tag::kLogits:
      return "logits";
    case Tag::kWorkspace:
      return "workspace";
  }
  return "";
}

Bytes total_bytes(std::span<const TableEntry> table) {
  Count sum = 0;
  for (const TableEntry& entry : table) sum += entry.bytes;
  return sum.value();
}

Bytes weight_bytes(const Description& description, Dtype dtype) {
  Count sum = 0;
  const ModuleSizes sizes = compute_module_sizes(description);
  for (const ModuleSizes::Node& node : sizes.nodes()) {
    if (node.shape == nullptr || node.bits == 0) continue;
    const bool converted = is_float(node.dtype) && bits(node.dtype) >= 16;
    const Count each = bits(converted ? dtype : node.dtype);
    sum += whole_bytes((each * node.elements).value());
  }
  return sum.value();
}

Bytes kv_layer_bytes(const Dimensions& d, const InferenceRequest& request, bool windowed) {
  check(request);
  if (!d.causal) return 0;
  const std::int64_t kept = windowed && d.sliding_window > 0
                                ? std::min(request.context, d.sliding_window)
                                : request.context;
  const Count input = d.encoder_layers > 0 ? request.context : 0;
  return (Count(2) * d.kv_heads * d.head_size * (Count(kept) + input) * request.batch *
          element_bytes(request))
      .value();
}

Bytes kv_bytes(const Dimensions& d, const InferenceRequest& request) {
  const std::int64_t windowed = std::min(d.windowed_layers, d.layers);
  return (Count(windowed) * kv_layer_bytes(d, request, true) +
          Count(d.layers - windowed) * kv_layer_bytes(d, request, false))
      .value();
}

Bytes inference_activation_bytes(const Dimensions& d, const InferenceRequest& request) {
  check(request);
  const Count s = element_bytes(request);
  const bool whole = !d.causal || d.encoder_layers > 0;
  const PromptPart part = whole ? PromptPart{request.batch, request.context}
                                : prompt_part(request.batch, request.context, request.context);
  const Count tokens = part.tokens;
  // Or a token of each.
  const Count n =
      whole ? tokens * request.batch
            : Count(std::max(most_at_once(request.batch, request.context), request.batch));
  Count attention = n * d.head_size * (Count(5) * d.heads + Count(3) * d.kv_heads);
  // Heads that share keys and values get copies, also of those of earlier parts.
  if (d.causal && d.kv_heads < d.heads) {
    attention += Count(2) * (Count(request.context) - tokens) * part.rows * d.heads * d.head_size;
  }
  // Who looks at whom: of prompts with padding or windows as truths for all layers, of which those
  // with a window may have their own, and as numbers for the layer at hand; else of some tokens.
  const bool windowed = d.windowed_layers > 0 && d.sliding_window < request.context;
  const Count pairs = tokens * part.rows * request.context;
  Count truths = 0;
  if (d.causal && (part.rows > 1 || windowed)) {
    truths = pairs * (windowed ? 2 : 1);
    attention += pairs;
  } else if (part.tokens < request.context) {
    attention += Count(kTokensThatLookBack) * request.context;
  }
  const Count mlp = n * (d.gated_mlp ? 3 : 2) * d.intermediate;
  Count bytes = s * (n * (Count(4) * d.hidden + Count(2) * d.head_size) + std::max(attention, mlp));
  if (d.score_bias) {
    constexpr int kPlaces = 24;  // three 64-bit numbers
    bytes += (Count(2) * s * d.heads + kPlaces) * pairs;
  }
  return (bytes + truths).value();
}

Bytes inference_logits_bytes(const Description& description, const InferenceRequest& request) {
  check(request);
  if (core::output_head(description) == nullptr) return 0;
  const Dimensions& d = *description.dimensions;
  const std::int64_t tokens = d.causal ? 1 : request.context;
  return (Count(request.batch) * tokens * d.vocabulary * (element_bytes(request) + 4)).value();
}

Bytes recorded_pass_bytes(const Description& description, const InferenceRequest& request) {
  const Dimensions& d = *description.dimensions;
  // As kernels/cuda/attend.cu has it. The attention of a head to 64 tokens: sums of values in
  // float32, of sizes that there are kernels for, their weight and the largest score.
  const Count size = d.head_size <= 64 ? 64 : d.head_size <= 128 ? 128 : 256;
  const Count parts = Count(request.batch) * d.heads * ((request.context + 63) / 64);
  InferenceRequest token = request;
  token.context = 1;
  return (Count(4) * parts * (size + 2) + inference_activation_bytes(d, token) +
          inference_logits_bytes(description, token))
      .value();
}

std::vector<TableEntry> inference_table(const Description& description,
                                        const InferenceRequest& request) {
  check(request);
  std::vector<TableEntry> table;
  const auto add = [&](Tag tag, Bytes bytes) {
    if (bytes > 0) table.push_back({tag, bytes});
  };
  add(Tag::kWeights, weight_bytes(description, request.dtype));
  if (description.dimensions) {
    add(Tag::kKv, kv_bytes(*description.dimensions, request));
    add(Tag::kActivations, inference_activation_bytes(*description.dimensions, request));
    add(Tag::kLogits, inference_logits_bytes(description, request));
  }
  add(Tag::kWorkspace, core::kBlasWorkspace);
  return table;
}

}  // namespace haul
