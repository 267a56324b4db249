#pragma once

// A group on one of c10d's backends.

#include <memory>
#include <string>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "distributed/group/group.h"

namespace haul::distributed {

// Where the processes find each other: rank 0 listens, unless the launcher already does.
c10::intrusive_ptr<c10d::Store> make_store(const GroupPlace& place);

// `wire` is where the backend wants tensors.
std::unique_ptr<Group> make_c10d_group(const c10::intrusive_ptr<c10d::Backend>& backend,
                                       const c10::intrusive_ptr<c10d::Store>& store,
                                       const at::Device& wire);

// Called in a handler: throws what is being handled as an Error that says who failed at what.
[[noreturn]] void rethrow(int rank, int size, const std::string& doing);

}  // namespace haul::distributed
