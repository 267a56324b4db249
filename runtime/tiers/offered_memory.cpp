#include "runtime/tiers/offered_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "core/base/pages.h"

namespace haul::runtime {
namespace {

constexpr Bytes kLeast = 16 * core::kHugePage;
const Bytes kPage = static_cast<Bytes>(sysconf(_SC_PAGESIZE));

struct Offered {
  std::mutex mutex;
  std::byte* memory = nullptr;
  Bytes size = 0;
  Bytes brought = 0;

  void skip(Bytes bytes) {
    memory += bytes;
    size -= bytes;
    brought -= std::min(brought, bytes);
  }
};

Offered& offered() {
  static Offered memory;
  return memory;
}

}  // namespace

void offer_memory(std::byte* memory, Bytes size, Bytes brought) {
  drop_offered();
  Offered& to = offered();
  const std::lock_guard lock(to.mutex);
  to.memory = memory;
  to.size = size;
  to.brought = brought;
}

std::byte* take_offered(Bytes size) {
  Offered& from = offered();
  const std::lock_guard lock(from.mutex);
  if (size < kLeast || size > from.size) return nullptr;
  const Bytes room = (size + core::kHugePage - 1) / core::kHugePage * core::kHugePage;
  std::byte* const taken = from.memory;
  from.skip(room);
  const Bytes used = (size + kPage - 1) / kPage * kPage;  // as much as the caller unmaps
  if (used < room) munmap(taken + used, room - used);
  return taken;
}

Bytes offered_now() {
  const std::lock_guard lock(offered().mutex);
  return offered().brought;
}

void drop_offered() {
  Offered& from = offered();
  const std::lock_guard lock(from.mutex);
  if (from.size > 0) munmap(from.memory, from.size);
  from.skip(from.size);
}

}  // namespace haul::runtime
