#pragma once

// From a model's files to its Description. Pure functions of what they read; any thread may call
// them. Errors name the file and the key or the tensor.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/formats/model_files.h"
#include "haul/description.h"

namespace haul::core {

enum class WeightDtype {
  // Every weight in float32, the way Transformers builds a model from its config alone.
  kFloat32,
  // As the checkpoint holds them or, where there is none, as the config's "dtype" (or
  // "torch_dtype") says; float32 when nothing says. Non-persistent buffers keep their own.
  kStored,
};

struct DescribeOptions {
  bool base_model = false;  // the bare model of the family instead of the class the config names
  WeightDtype dtype = WeightDtype::kFloat32;
};

// Which file told the structure: config.json, or the checkpoint's headers or metadata.
enum class DescribedFrom { kConfig, kCheckpoint };

struct Described {
  Description description;
  DescribedFrom from = DescribedFrom::kConfig;
  std::vector<std::string> notes;  // the checkpoint's remarks for the user, where it was opened
};

// A known architecture is described from its config, or from a GGUF file's metadata, and its ties
// are checked against the checkpoint where there is one: a tied name that the checkpoint holds with
// other values is not tied. Any other model is described from its checkpoint's headers. Throws
// Error(kUnsupported) for an unknown architecture without a checkpoint, Error(kNotFound) when there
// is neither.
Described describe(const ModelFiles& files, const DescribeOptions& options = {});

// Whether a description without the checkpoint's headers would be impossible or might be wrong: an
// unknown architecture, ties that the config does not tell, stored dtypes. For a caller that must
// fetch them.
bool needs_headers(const ModelFiles& files, const DescribeOptions& options = {});

// From a config alone; `source` names it in messages. A config without "architectures" is the bare
// model of its "model_type".
Description describe_config(const Json& config, std::string_view source,
                            const DescribeOptions& options = {});

// From the tensors' names: each dot is a level of the tree, and numbered repeats are its blocks
// ("Block"), which are not split. Dtypes are those of the tensors. Integers and the running
// statistics of norms are buffers. Throws Error(kCorrupt) for a name that makes no tree.
Description describe_tensors(std::span<const HeaderTensor> tensors, std::string_view source);

}  // namespace haul::core
