#include <fmt/format.h>

#include "core/describe/gguf_family.h"
#include "core/describe/gguf_rope.h"
#include "haul/error.h"

namespace haul::core {
namespace {

constexpr GgufName kNames[] = {
    {"token_embd", "model.embed_tokens"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm"},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj"},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj"},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.attn_q_norm", "model.layers.#.self_attn.q_norm"},
    {"blk.#.attn_k_norm", "model.layers.#.self_attn.k_norm"},
    {"blk.#.ffn_norm", "model.layers.#.post_attention_layernorm"},
    {"blk.#.ffn_gate", "model.layers.#.mlp.gate_proj"},
    {"blk.#.ffn_up", "model.layers.#.mlp.up_proj"},
    {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    // Told by the config instead.
    {"rope_freqs", ""},
    {"blk.#.attn_rot_embd", ""},
};

void refuse_experts(const GgufSource& source) {
  if (source.optional_number("expert_count").value_or(0) == 0) return;
  throw Error(ErrorKind::kUnsupported,
              fmt::format("{}: a mixture of experts, which haul does not read", source.name()));
}

// What all models of this kind have. In those that come from Llama, the rotary rows of queries and
// keys are interleaved.
GgufFacts read_common(const GgufSource& source, std::string_view model_type,
                      std::string_view class_name, bool interleaved) {
  refuse_experts(source);
  GgufFacts facts;
  facts.names.assign(std::begin(kNames), std::end(kNames));
  if (interleaved) {
    for (GgufName& name : facts.names) {
      if (name.gguf == "blk.#.attn_q") name.layout = GgufLayout::kRotaryQuery;
      if (name.gguf == "blk.#.attn_k") name.layout = GgufLayout::kRotaryKey;
    }
  }
  const std::int64_t hidden = source.size("embedding_length");
  facts.heads = source.size("attention.head_count");
  facts.key_heads = source.optional_size("attention.head_count_kv").value_or(facts.heads);
  const auto rotated = interleaved ? source.optional_size("rope.dimension_count") : std::nullopt;
  const std::int64_t head_size =
      source.optional_size("attention.key_length").value_or(rotated.value_or(hidden / facts.heads));
  const double theta = source.optional_number("rope.freq_base").value_or(10000);

  Json& config = facts.config;
  config = {{"architectures", {class_name}},
            {"model_type", model_type},
            {"vocab_size", source.rows("token_embd.weight")},
            {"hidden_size", hidden},
            {"intermediate_size", source.size("feed_forward_length")},
            {"num_hidden_layers", source.size("block_count")},
            {"num_attention_heads", facts.heads},
            {"num_key_value_heads", facts.key_heads},
            {"head_dim", head_size},
            {"hidden_act", "silu"},
            {"max_position_embeddings", source.size("context_length")},
            {"rms_norm_eps", source.number("attention.layer_norm_rms_epsilon")},
            {"rope_theta", theta},
            {"rope_scaling", gguf_rope_scaling(source, theta, head_size)},
            {"tie_word_embeddings", !source.has("output.weight")}};
  source.add_token_ids(&config);
  return facts;
}

GgufFacts read_llama(const GgufSource& source) {
  GgufFacts facts = read_common(source, "llama", "LlamaForCausalLM", true);
  facts.config["attention_bias"] = source.has("blk.0.attn_q.bias");
  facts.config["mlp_bias"] = source.has("blk.0.ffn_gate.bias");
  return facts;
}

GgufFacts read_mistral3(const GgufSource& source) {
  if (source.optional_number("attention.temperature_scale").value_or(0) != 0) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("{}: attention whose scale grows with the position, which haul does "
                            "not read",
                            source.name()));
  }
  GgufFacts facts = read_common(source, "mistral", "MistralForCausalLM", true);
  facts.config["sliding_window"] = nullptr;
  return facts;
}

GgufFacts read_qwen2(const GgufSource& source) {
  return read_common(source, "qwen2", "Qwen2ForCausalLM", false);
}

GgufFacts read_qwen3(const GgufSource& source) {
  GgufFacts facts = read_common(source, "qwen3", "Qwen3ForCausalLM", false);
  facts.config["attention_bias"] = source.has("blk.0.attn_q.bias");
  return facts;
}

}  // namespace

extern const GgufFamily kLlamaGguf = {"llama", read_llama};
extern const GgufFamily kMistral3Gguf = {"mistral3", read_mistral3};
extern const GgufFamily kQwen2Gguf = {"qwen2", read_qwen2};
extern const GgufFamily kQwen3Gguf = {"qwen3", read_qwen3};

}  // namespace haul::core
