#include <cstdlib>
#include <string>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "distributed/group/c10d_group.h"
#include "distributed/group/own_address.h"

namespace haul::distributed {
namespace {

using Gloo = c10d::ProcessGroupGloo;

// The network over which the processes talk. Of several machines, the one on which they reach the
// first: a machine's own name often stands for an address that no other can use.
auto device_for(const core::RankEnvironment& environment) {
  const char* const named = std::getenv("GLOO_SOCKET_IFNAME");
  if (named != nullptr && *named != '\0') {
    const std::string names = named;
    return Gloo::createDeviceForInterface(names.substr(0, names.find(',')));
  }
  if (environment.world > environment.local_world) {
    if (const auto address = own_address_towards(environment.master_addr)) {
      return Gloo::createDeviceForHostname(*address);
    }
  }
  return Gloo::createDefaultDevice();
}

}  // namespace

std::unique_ptr<Group> make_gloo_group(const GroupPlace& place) {
  const core::RankEnvironment& environment = place.environment;
  const auto store = make_store(place);
  try {
    const auto options = Gloo::Options::create(place.timeout);
    options->devices.push_back(device_for(environment));
    return make_c10d_group(
        c10::make_intrusive<Gloo>(store, environment.rank, environment.world, options), store,
        at::kCPU);
  } catch (...) {
    rethrow(environment.rank, environment.world, "connecting to the others");
  }
}

}  // namespace haul::distributed
