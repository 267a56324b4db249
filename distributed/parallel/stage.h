#pragma once

// The part of a model that one process of a pipeline has.

#include <functional>
#include <string>
#include <vector>

#include "haul/error.h"
#include "haul/torch/partial_state.h"
#include "haul/torch/pipeline.h"

namespace haul::distributed {

struct PipelineStage {
  std::vector<std::string> blocks;
  PipelineBlocks::Forward forward;
  Bytes bytes_read = 0;
};

// In a handler: what is being handled, as other processes are told of it.
Error as_error(int process);

// Of a user's model; nothing is loaded.
PipelineStage stage_of(const PipelineBlocks& blocks, const PartialState& processes,
                       const std::vector<std::string>& split_points);
// Of a model of haul's families, with its weights.
PipelineStage stage_of(const std::string& name, const PartialState& processes,
                       const std::vector<std::string>& split_points, ModelOptions options);

}  // namespace haul::distributed
