#pragma once

// Which of a repository's files to fetch. Pure; may be called from any thread.

#include <string>
#include <vector>

#include "core/hub/answers.h"

namespace haul::core {

struct Selection {
  std::vector<HubFile> files;
  std::vector<HubFile> skipped;  // weights that are there in a better format
};

// What `haul download` brings. Patterns are shell globs over the whole name, where '*' also matches
// '/'. With includes, exactly what they match; without, all but second copies of the weights: where
// there are safetensors, no pickles; where there is either, no TensorFlow, Flax, Rust or ONNX
// files; no consolidated.safetensors beside model*.safetensors. Excludes always apply.
Selection select_for_download(const std::vector<HubFile>& files,
                              const std::vector<std::string>& include,
                              const std::vector<std::string>& exclude);

// What running the model needs: of its top folder, the texts (config, tokenizer) and the weights in
// one format; and the pooling of a sentence-transformers model. Throws Error(kUsage) that lists
// them for several GGUF files and no other weights.
std::vector<HubFile> select_for_run(const std::vector<HubFile>& files,
                                    const std::string& repository);

// The names of the top folder's safetensors: model.safetensors or all that are not consolidated.
std::vector<HubFile> top_safetensors(const std::vector<HubFile>& files);

}  // namespace haul::core
