#include "core/describe/gguf_family.h"

namespace haul::core {
namespace {

constexpr GgufName kNames[] = {
    {"token_embd", "transformer.wte"},
    {"position_embd", "transformer.wpe"},
    {"blk.#.attn_norm", "transformer.h.#.ln_1"},
    {"blk.#.attn_qkv", "transformer.h.#.attn.c_attn", GgufLayout::kTransposed},
    {"blk.#.attn_output", "transformer.h.#.attn.c_proj", GgufLayout::kTransposed},
    {"blk.#.ffn_norm", "transformer.h.#.ln_2"},
    {"blk.#.ffn_up", "transformer.h.#.mlp.c_fc", GgufLayout::kTransposed},
    {"blk.#.ffn_down", "transformer.h.#.mlp.c_proj", GgufLayout::kTransposed},
    {"output_norm", "transformer.ln_f"},
    {"output", "lm_head"},
};

GgufFacts read(const GgufSource& source) {
  GgufFacts facts;
  facts.names.assign(std::begin(kNames), std::end(kNames));
  const std::int64_t positions = source.size("context_length");
  facts.config = {{"architectures", {"GPT2LMHeadModel"}},
                  {"model_type", "gpt2"},
                  {"vocab_size", source.rows("token_embd.weight")},
                  {"n_positions", positions},
                  {"n_ctx", positions},
                  {"n_embd", source.size("embedding_length")},
                  {"n_layer", source.size("block_count")},
                  {"n_head", source.size("attention.head_count")},
                  {"n_inner", source.size("feed_forward_length")},
                  {"activation_function", "gelu_new"},
                  {"layer_norm_epsilon", source.number("attention.layer_norm_epsilon")},
                  {"tie_word_embeddings", !source.has("output.weight")}};
  source.add_token_ids(&facts.config);
  return facts;
}

}  // namespace

extern const GgufFamily kGpt2Gguf = {"gpt2", read};

}  // namespace haul::core
