#include "core/describe/gguf_family.h"

namespace haul::core {
namespace {

constexpr GgufName kNames[] = {
    {"token_embd", "shared"},
    {"enc.blk.#.attn_norm", "encoder.block.#.layer.0.layer_norm"},
    {"enc.blk.#.attn_q", "encoder.block.#.layer.0.SelfAttention.q"},
    {"enc.blk.#.attn_k", "encoder.block.#.layer.0.SelfAttention.k"},
    {"enc.blk.#.attn_v", "encoder.block.#.layer.0.SelfAttention.v"},
    {"enc.blk.#.attn_o", "encoder.block.#.layer.0.SelfAttention.o"},
    {"enc.blk.#.attn_rel_b", "encoder.block.#.layer.0.SelfAttention.relative_attention_bias"},
    {"enc.blk.#.ffn_norm", "encoder.block.#.layer.1.layer_norm"},
    {"enc.blk.#.ffn_down", "encoder.block.#.layer.1.DenseReluDense.wo"},
    {"enc.output_norm", "encoder.final_layer_norm"},
    {"dec.blk.#.attn_norm", "decoder.block.#.layer.0.layer_norm"},
    {"dec.blk.#.attn_q", "decoder.block.#.layer.0.SelfAttention.q"},
    {"dec.blk.#.attn_k", "decoder.block.#.layer.0.SelfAttention.k"},
    {"dec.blk.#.attn_v", "decoder.block.#.layer.0.SelfAttention.v"},
    {"dec.blk.#.attn_o", "decoder.block.#.layer.0.SelfAttention.o"},
    {"dec.blk.#.attn_rel_b", "decoder.block.#.layer.0.SelfAttention.relative_attention_bias"},
    {"dec.blk.#.cross_attn_norm", "decoder.block.#.layer.1.layer_norm"},
    {"dec.blk.#.cross_attn_q", "decoder.block.#.layer.1.EncDecAttention.q"},
    {"dec.blk.#.cross_attn_k", "decoder.block.#.layer.1.EncDecAttention.k"},
    {"dec.blk.#.cross_attn_v", "decoder.block.#.layer.1.EncDecAttention.v"},
    {"dec.blk.#.cross_attn_o", "decoder.block.#.layer.1.EncDecAttention.o"},
    // In the first releases' files, and used by no model.
    {"dec.blk.#.cross_attn_rel_b", ""},
    {"dec.blk.#.ffn_norm", "decoder.block.#.layer.2.layer_norm"},
    {"dec.blk.#.ffn_down", "decoder.block.#.layer.2.DenseReluDense.wo"},
    {"dec.output_norm", "decoder.final_layer_norm"},
    {"output", "lm_head"},
};

constexpr GgufName kPlainNames[] = {
    {"enc.blk.#.ffn_up", "encoder.block.#.layer.1.DenseReluDense.wi"},
    {"dec.blk.#.ffn_up", "decoder.block.#.layer.2.DenseReluDense.wi"},
};

constexpr GgufName kGatedNames[] = {
    {"enc.blk.#.ffn_gate", "encoder.block.#.layer.1.DenseReluDense.wi_0"},
    {"enc.blk.#.ffn_up", "encoder.block.#.layer.1.DenseReluDense.wi_1"},
    {"dec.blk.#.ffn_gate", "decoder.block.#.layer.2.DenseReluDense.wi_0"},
    {"dec.blk.#.ffn_up", "decoder.block.#.layer.2.DenseReluDense.wi_1"},
};

// Old files carry the epsilon under the name of the other norm.
double norm_epsilon(const GgufSource& source) {
  const auto value = source.optional_number("attention.layer_norm_rms_epsilon");
  return value ? *value : source.number("attention.layer_norm_epsilon");
}

GgufFacts read_common(const GgufSource& source, std::string_view class_name) {
  const bool gated = source.has("enc.blk.0.ffn_gate.weight");
  GgufFacts facts;
  facts.names.assign(std::begin(kNames), std::end(kNames));
  if (gated) {
    facts.names.insert(facts.names.end(), std::begin(kGatedNames), std::end(kGatedNames));
  } else {
    facts.names.insert(facts.names.end(), std::begin(kPlainNames), std::end(kPlainNames));
  }
  const std::int64_t layers = source.size("block_count");
  facts.config = {
      {"architectures", {class_name}},
      {"model_type", "t5"},
      {"vocab_size", source.rows("token_embd.weight")},
      {"d_model", source.size("embedding_length")},
      {"d_kv", source.size("attention.key_length")},
      {"d_ff", source.size("feed_forward_length")},
      {"num_layers", layers},
      {"num_decoder_layers", source.optional_size("decoder_block_count").value_or(layers)},
      {"num_heads", source.size("attention.head_count")},
      {"n_positions", source.size("context_length")},
      {"relative_attention_num_buckets", source.size("attention.relative_buckets_count")},
      {"layer_norm_epsilon", norm_epsilon(source)},
      {"feed_forward_proj", gated ? "gated-gelu" : "relu"},
      {"tie_word_embeddings", !source.has("output.weight")}};
  source.add_token_ids(&facts.config);
  return facts;
}

GgufFacts read(const GgufSource& source) {
  GgufFacts facts = read_common(source, "T5ForConditionalGeneration");
  // 0, the token that pads, unless the file names another.
  const double start = source.optional_number("decoder_start_token_id").value_or(0);
  const bool sensible = start >= 0 && start < 0x1p31;
  facts.config["decoder_start_token_id"] = sensible ? static_cast<std::int64_t>(start) : 0;
  return facts;
}

GgufFacts read_encoder(const GgufSource& source) {
  return read_common(source, "T5EncoderModel");
}

}  // namespace

extern const GgufFamily kT5Gguf = {"t5", read};
extern const GgufFamily kT5EncoderGguf = {"t5encoder", read_encoder};

}  // namespace haul::core
