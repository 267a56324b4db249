#include "distributed/group/group.h"
#include "haul/error.h"

namespace haul::distributed {

std::unique_ptr<Group> make_nccl_group(const GroupPlace& /*place*/) {
  throw Error(ErrorKind::kUnsupported, "haul was built without CUDA: no group of GPUs",
              "ask for the CPU, or build where nvcc and the full torch wheel are");
}

}  // namespace haul::distributed
