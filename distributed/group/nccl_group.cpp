#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "distributed/group/c10d_group.h"

namespace haul::distributed {

std::unique_ptr<Group> make_nccl_group(const GroupPlace& place) {
  const core::RankEnvironment& environment = place.environment;
  const auto store = make_store(place);
  try {
    const auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = place.timeout;
    return make_c10d_group(c10::make_intrusive<c10d::ProcessGroupNCCL>(store, environment.rank,
                                                                       environment.world, options),
                           store, place.device);
  } catch (...) {
    rethrow(environment.rank, environment.world, "connecting the GPUs");
  }
}

}  // namespace haul::distributed
