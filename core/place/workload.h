#pragma once

#include <optional>

#include "core/place/model_world.h"
#include "haul/plan.h"

namespace haul::core {

// Bytes a second of weights that the CPU can multiply with so many rows of input.
double multiplied(const Profile& profile, Dtype dtype, std::int64_t rows);

// What a request brings beside the weights, from the estimate's table: for one step (a token of
// each sequence, for many with a share of their prompts, or a pass of a model that does not
// generate), and for the prompt.
Workload plan_workload(const Description& description, const PlanRequest& request,
                       const Profile& profile);
// The same where not all lies on one GPU, with so much in RAM for GPUs: passes are not recorded
// there.
Workload apart(Workload load, Bytes in_ram);
// The same with keys and values in RAM; nothing where that cannot be: it is for decoders on one GPU
// that look at all tokens, with a budget of RAM.
std::optional<Workload> with_kv_in_ram(const Workload& load, const Description& description,
                                       const PlanRequest& request);
Workload prompt_workload(const Description& description, const PlanRequest& request,
                         const Profile& profile);

}  // namespace haul::core
