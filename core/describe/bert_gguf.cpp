#include "core/describe/gguf_family.h"

namespace haul::core {
namespace {

constexpr GgufName kNames[] = {
    {"token_embd", "embeddings.word_embeddings"},
    {"position_embd", "embeddings.position_embeddings"},
    {"token_types", "embeddings.token_type_embeddings"},
    {"token_embd_norm", "embeddings.LayerNorm"},
    {"blk.#.attn_q", "encoder.layer.#.attention.self.query"},
    {"blk.#.attn_k", "encoder.layer.#.attention.self.key"},
    {"blk.#.attn_v", "encoder.layer.#.attention.self.value"},
    {"blk.#.attn_output", "encoder.layer.#.attention.output.dense"},
    {"blk.#.attn_output_norm", "encoder.layer.#.attention.output.LayerNorm"},
    {"blk.#.ffn_up", "encoder.layer.#.intermediate.dense"},
    {"blk.#.ffn_down", "encoder.layer.#.output.dense"},
    {"blk.#.layer_output_norm", "encoder.layer.#.output.LayerNorm"},
};

// The conversion drops the pooler, so what comes out is the bare model without it.
GgufFacts read(const GgufSource& source) {
  GgufFacts facts;
  facts.names.assign(std::begin(kNames), std::end(kNames));
  facts.config = {{"architectures", {"BertModel"}},
                  {"model_type", "bert"},
                  {"vocab_size", source.rows("token_embd.weight")},
                  {"hidden_size", source.size("embedding_length")},
                  {"num_hidden_layers", source.size("block_count")},
                  {"num_attention_heads", source.size("attention.head_count")},
                  {"intermediate_size", source.size("feed_forward_length")},
                  {"hidden_act", "gelu"},
                  {"max_position_embeddings", source.rows("position_embd.weight")},
                  {"type_vocab_size", source.rows("token_types.weight")},
                  {"layer_norm_eps", source.number("attention.layer_norm_epsilon")}};
  source.add_token_ids(&facts.config);
  return facts;
}

}  // namespace

extern const GgufFamily kBertGguf = {"bert", read};

}  // namespace haul::core
