#pragma once

// The small module trees of the planner's cases.

#include <string>
#include <utility>
#include <vector>

#include "haul/description.h"

namespace haul::test {

inline ModuleSpec linear(std::string name, std::int64_t in, std::int64_t out, bool bias = true) {
  ModuleSpec module{std::move(name), "Linear", {{"weight", Dtype::kF32, {out, in}}}, {}, {}};
  if (bias) module.parameters.push_back({"bias", Dtype::kF32, {out}});
  return module;
}

inline ModuleSpec batch_norm(std::string name, std::int64_t size) {
  return {std::move(name),
          "BatchNorm1d",
          {{"weight", Dtype::kF32, {size}}, {"bias", Dtype::kF32, {size}}},
          {{"running_mean", Dtype::kF32, {size}, true},
           {"running_var", Dtype::kF32, {size}, true},
           {"num_batches_tracked", Dtype::kI64, {}, true}},
          {}};
}

inline ModuleSpec container(std::string name, std::string class_name,
                            std::vector<ModuleSpec> children) {
  return {std::move(name), std::move(class_name), {}, {}, std::move(children)};
}

inline Description describe(ModuleSpec root, std::vector<std::vector<std::string>> tied = {},
                            std::vector<std::string> no_split = {}) {
  Description description;
  description.root = std::move(root);
  description.tied = std::move(tied);
  description.no_split = std::move(no_split);
  return description;
}

// 64 + 72 + 100 = 236 bytes.
inline ModuleSpec m_module(std::string name) {
  return container(std::move(name), "M",
                   {linear("linear1", 3, 4), batch_norm("batchnorm", 4), linear("linear2", 4, 5)});
}
inline Description tree_m() {
  return describe(m_module(""));
}
inline Description tree_mm() {
  return describe(container("", "Sequential", {m_module("0"), m_module("1"), m_module("2")}));
}
inline Description tree_l3() {
  return describe(
      container("", "L3", {m_module("layer1"), m_module("layer2"), m_module("layer3")}));
}

// A small language model of 15,076 bytes; its blocks take 1,440.
inline Description tree_g(bool tied) {
  ModuleSpec wte{"wte", "Embedding", {{"weight", Dtype::kF32, {100, 8}}}, {}, {}};
  std::vector<ModuleSpec> blocks;
  for (int i = 0; i < 6; ++i) {
    blocks.push_back(
        container(std::to_string(i), "Block", {linear("attn", 8, 8), linear("mlp", 8, 32)}));
  }
  Description description =
      describe(container("", "G",
                         {wte, container("h", "ModuleList", std::move(blocks)), linear("ln", 8, 1),
                          linear("lm_head", 8, 100, false)}),
               {}, {"Block"});
  if (tied) description.tied = {{"wte.weight", "lm_head.weight"}};
  return description;
}

// Four blocks of 880 bytes and a head of 44.
inline Description tree_n() {
  std::vector<ModuleSpec> blocks;
  for (int i = 0; i < 4; ++i) {
    blocks.push_back(
        container(std::to_string(i), "Block", {linear("a", 10, 10), linear("b", 10, 10)}));
  }
  return describe(
      container("", "N",
                {container("blocks", "ModuleList", std::move(blocks)), linear("out", 10, 1)}),
      {}, {"Block"});
}

}  // namespace haul::test
