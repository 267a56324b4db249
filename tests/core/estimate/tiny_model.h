#pragma once

#include "haul/description.h"

namespace haul::test {

inline ModuleSpec linear(std::string name, std::int64_t in, std::int64_t out) {
  return {std::move(name), "Linear", {{"weight", Dtype::kF32, {out, in}}}, {}, {}};
}

// A gated decoder of one alphabet: L 2, C 8, H 4, K 2, D 2, I 16, V 100; its head tied to its
// table, and a buffer of 10 whole numbers.
inline Description tiny_decoder() {
  const auto layer = [](std::string name) {
    return ModuleSpec{std::move(name),
                      "TinyLayer",
                      {},
                      {},
                      {linear("q", 8, 8),
                       linear("k", 8, 4),
                       linear("v", 8, 4),
                       linear("o", 8, 8),
                       linear("gate", 8, 16),
                       linear("up", 8, 16),
                       linear("down", 16, 8),
                       {"norm", "RMSNorm", {{"weight", Dtype::kF32, {8}}}, {}, {}}}};
  };
  Description d;
  d.root = {"",
            "TinyForCausalLM",
            {},
            {{"ids", Dtype::kI64, {10}, false}},
            {{"embed", "Embedding", {{"weight", Dtype::kF32, {100, 8}}}, {}, {}},
             {"layers", "ModuleList", {}, {}, {layer("0"), layer("1")}},
             linear("lm_head", 8, 100)}};
  d.tied = {{"embed.weight", "lm_head.weight"}};
  d.no_split = {"TinyLayer"};
  d.architecture = "TinyForCausalLM";
  Dimensions n;
  n.layers = 2;
  n.hidden = 8;
  n.heads = 4;
  n.kv_heads = 2;
  n.head_size = 2;
  n.intermediate = 16;
  n.gated_mlp = true;
  n.vocabulary = 100;
  n.causal = true;
  d.dimensions = n;
  return d;
}

inline constexpr std::uint64_t kTinyTable = 800;        // elements of the embedding
inline constexpr std::uint64_t kTinyLinears = 2 * 576;  // of the linear layers of both blocks
inline constexpr std::uint64_t kTinyNorms = 2 * 8;
inline constexpr std::uint64_t kTinyParameters = kTinyTable + kTinyLinears + kTinyNorms;
inline constexpr std::uint64_t kTinyBuffer = 80;  // bytes

}  // namespace haul::test
