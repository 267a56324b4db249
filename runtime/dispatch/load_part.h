#pragma once

// Loading a model that has a part of a checkpoint's tensors, one of several processes that share
// it.

#include <filesystem>
#include <map>
#include <string>

#include "core/describe/cut.h"
#include "haul/torch/dispatch.h"

namespace haul::runtime {

struct CheckpointPart {
  core::TensorPart part;
  std::map<std::string, core::TensorCut> cuts;  // by the names of the tensors that are cut
};

// As load_checkpoint_in_model(), which has nothing cut. Parts of whole rows are read alone; of
// others the whole tensor is read and the part is kept.
LoadReport load_part(const ModelRef& model, const std::filesystem::path& checkpoint,
                     const Placement& placement, const LoadOptions& options,
                     const CheckpointPart& part);

}  // namespace haul::runtime
