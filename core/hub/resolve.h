#pragma once

// From what a user calls a model to its files. A MODEL is a folder, a config.json, a checkpoint
// file (.safetensors, .bin, .pt, .pth, .gguf, .index.json) or a name on the hub ("org/name",
// "name", either with "@revision"). What exists on the disk wins over a name on the hub. May be
// called from any thread; two threads or processes that want the same file fetch it once.

#include <string>

#include "core/formats/model_files.h"

namespace haul::core {

enum class Need {
  kConfigOnly,  // config.json, and weights only if they lie here already
  kHeaders,     // and the names, dtypes and shapes of the tensors
  kAll,         // and the weights and the tokenizer
};

struct ResolveOptions {
  Need need = Need::kAll;
  // A branch, tag or commit of a name on the hub; empty: what follows '@' in the name, or "main".
  std::string revision;
};

// A name on the hub is looked up in the cache first and asked for only when a needed file is
// missing there; `haul download` asks always and so brings a newer version. The result's `config`
// is empty when the model has none. With kHeaders, either `checkpoint` is set (the weights lie
// here) or `remote_tensors` are, or neither when the hub has no safetensors of the model.
// Throws Error: kNotFound for no such path, model, revision or file; kUsage for a name that is
// neither path nor hub name; kResource for no access, no network, offline mode or a full disk;
// kCorrupt for answers and files that fail their checks.
ModelFiles resolve_model(const std::string& name, const ResolveOptions& options = {});

}  // namespace haul::core
