#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "distributed/group/c10d_group.h"

namespace haul::distributed {

std::unique_ptr<Group> make_gloo_group(const GroupPlace& place) {
  const core::RankEnvironment& environment = place.environment;
  const auto store = make_store(place);
  try {
    const auto options = c10d::ProcessGroupGloo::Options::create(place.timeout);
    options->devices.push_back(c10d::ProcessGroupGloo::createDefaultDevice());
    return make_c10d_group(c10::make_intrusive<c10d::ProcessGroupGloo>(store, environment.rank,
                                                                       environment.world, options),
                           store, at::kCPU);
  } catch (...) {
    rethrow(environment.rank, environment.world, "connecting to the others");
  }
}

}  // namespace haul::distributed
