#include "core/describe/gguf_family.h"

namespace haul::core {
namespace {

constexpr GgufName kNames[] = {
    {"token_embd", "transformer.word_embeddings"},
    {"token_embd_norm", "transformer.word_embeddings_layernorm"},
    {"blk.#.attn_norm", "transformer.h.#.input_layernorm"},
    {"blk.#.attn_qkv", "transformer.h.#.self_attention.query_key_value", GgufLayout::kJoinedHeads},
    {"blk.#.attn_output", "transformer.h.#.self_attention.dense"},
    {"blk.#.ffn_norm", "transformer.h.#.post_attention_layernorm"},
    {"blk.#.ffn_up", "transformer.h.#.mlp.dense_h_to_4h"},
    {"blk.#.ffn_down", "transformer.h.#.mlp.dense_4h_to_h"},
    {"output_norm", "transformer.ln_f"},
    {"output", "lm_head"},
};

GgufFacts read(const GgufSource& source) {
  GgufFacts facts;
  facts.names.assign(std::begin(kNames), std::end(kNames));
  facts.heads = source.size("attention.head_count");
  facts.config = {{"architectures", {"BloomForCausalLM"}},
                  {"model_type", "bloom"},
                  {"vocab_size", source.rows("token_embd.weight")},
                  {"hidden_size", source.size("embedding_length")},
                  {"n_layer", source.size("block_count")},
                  {"n_head", facts.heads},
                  {"layer_norm_epsilon", source.number("attention.layer_norm_epsilon")},
                  // The head that the conversion writes is a copy of the embedding.
                  {"tie_word_embeddings", true}};
  source.add_token_ids(&facts.config);
  return facts;
}

}  // namespace

extern const GgufFamily kBloomGguf = {"bloom", read};

}  // namespace haul::core
