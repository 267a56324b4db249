#pragma once

// What all PartialStates of a process share.

#include <memory>

#include "core/launch/rank_environment.h"
#include "distributed/group/group.h"
#include "haul/torch/partial_state.h"

namespace haul {

struct PartialState::State {
  core::RankEnvironment environment;
  at::Device device = at::kCPU;
  std::unique_ptr<distributed::Group> group;
  int works = 0;  // times that work was shared, the same on every process
};

}  // namespace haul
