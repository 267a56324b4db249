#include <algorithm>

#include "core/estimate/count.h"
#include "core/estimate/linear_layers.h"
#include "core/estimate/workspace.h"
#include "haul/error.h"
#include "haul/estimate.h"

namespace haul {
namespace {

using core::Count;
using core::OwnedParameter;

void check(const TrainingRequest& request) {
  if (request.sequence < 1 || request.batch < 1 || request.lora_rank < 1) {
    throw Error(ErrorKind::kUsage, "sequence, batch and rank are at least 1");
  }
}

bool is_half(const TrainingRequest& request) {
  return request.precision != Precision::kFp32;
}

Dtype run_dtype(const TrainingRequest& request) {
  switch (request.precision) {
    case Precision::kFp32:
      return Dtype::kF32;
    case Precision::kBf16:
      return Dtype::kBF16;
    case Precision::kFp16:
      return Dtype::kF16;
  }
  return Dtype::kF32;
}

// s: an element of what matrix products read and write.
Count compute_bytes(const TrainingRequest& request) {
  return is_half(request) ? 2 : 4;
}

// r: an element of the residual stream. Float32 embeddings make it float32.
Count residual_bytes(const TrainingRequest& request) {
  return request.mode == TrainMode::kFull ? 4 : compute_bytes(request);
}

Count token_count(const TrainingRequest& request) {
  return Count(request.batch) * request.sequence;
}

// The shapes of the two adapters of every inner linear layer.
std::vector<Shape> lora_shapes(const Description& description, std::int64_t rank) {
  std::vector<Shape> shapes;
  const ModuleSpec* head = core::output_head(description);
  core::for_each_parameter(compute_module_sizes(description), [&](const OwnedParameter& p) {
    if (!core::is_inner_linear_weight(p, head)) return;
    shapes.push_back({rank, p.shape[1]});
    shapes.push_back({p.shape[0], rank});
  });
  return shapes;
}

std::vector<Shape> trained_shapes(const Description& description, const TrainingRequest& request) {
  if (request.mode == TrainMode::kLora) return lora_shapes(description, request.lora_rank);
  std::vector<Shape> shapes;
  core::for_each_parameter(compute_module_sizes(description), [&](const OwnedParameter& p) {
    if (p.counted) shapes.push_back(p.shape);
  });
  return shapes;
}

Count elements_of(const std::vector<Shape>& shapes) {
  Count sum = 0;
  for (const Shape& shape : shapes) sum += element_count(shape);
  return sum;
}

// Parameters that matrix products take, and so copy in half precision. Tables are looked up as
// they are; one that is tied to the head is copied for the head.
Count copied_elements(const Description& description) {
  Count sum = 0;
  core::for_each_parameter(compute_module_sizes(description), [&](const OwnedParameter& p) {
    const bool table = p.module.class_name.find("Embedding") != std::string::npos;
    if (p.shape.size() >= 2 && !table) sum += element_count(p.shape);
  });
  return sum;
}

Count buffer_bytes(const Description& description) {
  Count sum = 0;
  const ModuleSizes sizes = compute_module_sizes(description);
  for (const ModuleSizes::Node& node : sizes.nodes()) {
    if (node.kind == ModuleSizes::Kind::kBuffer && node.bits > 0) {
      sum += byte_count(node.dtype, *node.shape);
    }
  }
  return sum;
}

struct WeightEntries {
  Count weights = 0;
  Count master = 0;
};

WeightEntries weight_entries(const Description& description, const TrainingRequest& request,
                             Count trained) {
  if (request.mode == TrainMode::kLora) {
    const Count model = weight_bytes(description, run_dtype(request));
    return {model + trained * compute_bytes(request), is_half(request) ? trained * 4 : Count(0)};
  }
  const Count buffers = buffer_bytes(description);
  if (!is_half(request)) return {trained * 4 + buffers, 0};
  return {copied_elements(description) * 2 + buffers, trained * 4};
}

Count attention_bytes(const Dimensions& d, const TrainingRequest& request) {
  return compute_bytes(request) * 2 * d.head_size * (Count(d.heads) + d.kv_heads) +
         Count(4) * d.heads;
}

// A norm's input, and its output as the next products keep it. Where the output must be cast for
// them, each keeps a copy of its own.
Count norm_bytes(const Dimensions& d, const TrainingRequest& request, int products) {
  const bool cast = residual_bytes(request) != compute_bytes(request);
  return (residual_bytes(request) + compute_bytes(request) * (cast ? products : 1)) * d.hidden;
}

Count score_bias_bytes(const Dimensions& d, const TrainingRequest& request) {
  if (!d.score_bias) return 0;
  return compute_bytes(request) * d.heads * request.sequence * request.sequence;
}

// Logits, their float32 log-probabilities and the gradient of those.
Count logits_bytes(const Description& description, const TrainingRequest& request) {
  if (core::output_head(description) == nullptr) return 0;
  return token_count(request) * description.dimensions->vocabulary * (compute_bytes(request) + 8);
}

// The narrow activations between the two adapters of each layer.
Count adapter_activations(const Description& description, const TrainingRequest& request) {
  if (request.mode != TrainMode::kLora) return 0;
  const Count layers = lora_shapes(description, request.lora_rank).size() / 2;
  return token_count(request) * layers * request.lora_rank * compute_bytes(request);
}

Count activation_bytes(const Description& description, const TrainingRequest& request,
                       Count logits) {
  const Dimensions& d = *description.dimensions;
  const bool crossed = d.encoder_layers > 0;
  const Count own = training_layer_bytes(d, request, false);
  const Count decoder = training_layer_bytes(d, request, crossed);
  const Count ends =
      token_count(request) * norm_bytes(d, request, 1) + score_bias_bytes(d, request);
  if (!request.recompute) {
    return ends + own * d.encoder_layers + decoder * d.layers +
           adapter_activations(description, request);
  }
  const Count kept = token_count(request) * d.hidden * residual_bytes(request) *
                     (Count(d.layers) + d.encoder_layers);
  // The logits are gone when the first layer is computed again: the larger of both is the peak.
  return ends + kept + (decoder - logits);
}

// Gradients of one layer's activations, where the logits' are not larger, and the half-precision
// gradient of the largest matrix before it is added to its float32 one.
Count backward_bytes(const Description& description, const TrainingRequest& request,
                     const std::vector<Shape>& trained, Count logits) {
  Count sum = 0;
  if (description.dimensions) {
    const Dimensions& d = *description.dimensions;
    const Count mlp = compute_bytes(request) * (d.gated_mlp ? 3 : 2) * d.intermediate;
    sum += token_count(request) * (residual_bytes(request) * d.hidden + mlp) - logits;
  }
  if (is_half(request)) {
    std::uint64_t largest = 0;
    for (const Shape& shape : trained) largest = std::max(largest, element_count(shape));
    sum += Count(2) * largest;
  }
  return sum;
}

}  // namespace

std::uint64_t lora_parameter_count(const Description& description, std::int64_t rank) {
  return elements_of(lora_shapes(description, rank)).value();
}

Bytes training_layer_bytes(const Dimensions& d, const TrainingRequest& request,
                           bool cross_attention) {
  check(request);
  const Count mlp = compute_bytes(request) * (d.gated_mlp ? 4 : 2) * d.intermediate;
  Count each = norm_bytes(d, request, d.fused_qkv ? 1 : 3) + attention_bytes(d, request) +
               norm_bytes(d, request, d.gated_mlp ? 2 : 1) + mlp;
  // Queries are of the decoder's tokens, keys and values of the encoder's.
  if (cross_attention) each += norm_bytes(d, request, 3) + attention_bytes(d, request);
  return (token_count(request) * each).value();
}

std::vector<TableEntry> training_table(const Description& description,
                                       const TrainingRequest& request) {
  check(request);
  const std::vector<Shape> shapes = trained_shapes(description, request);
  const Count trained = elements_of(shapes);
  const WeightEntries weights = weight_entries(description, request, trained);
  Count state = 0;
  for (const Shape& shape : shapes) state += optimizer_bytes(request.optimizer, shape);

  std::vector<TableEntry> table;
  const auto add = [&](Tag tag, Count bytes) {
    if (bytes > 0) table.push_back({tag, bytes.value()});
  };
  add(Tag::kWeights, weights.weights);
  add(Tag::kMasterWeights, weights.master);
  add(Tag::kGradients, trained * 4);
  add(Tag::kOptimizer, state);
  const Count logits = logits_bytes(description, request);
  if (description.dimensions) {
    add(Tag::kActivations, activation_bytes(description, request, logits));
    add(Tag::kLogits, logits);
  }
  add(Tag::kWorkspace, core::kBlasWorkspace + backward_bytes(description, request, shapes, logits));
  return table;
}

}  // namespace haul
