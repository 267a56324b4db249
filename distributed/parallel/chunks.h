#pragma once

// A batch cut along its first dimension, and put together again. Pure.

#include <cstdint>
#include <vector>

#include "haul/torch/pipeline_value.h"

namespace haul::distributed {

// At most `count` parts, none without rows unless there are no rows at all. Tensors without a
// dimension, and all that is no tensor, go with every part. Throws Error(kUsage) for tensors that
// differ in rows.
std::vector<PipelineValue> split_rows(const PipelineValue& batch, std::int64_t count);

// Throws Error(kUsage) for parts that differ in more than rows, and for several tensors without a
// dimension or values that differ.
PipelineValue join_rows(const std::vector<PipelineValue>& parts);

}  // namespace haul::distributed
