#include "runtime/tiers/slab.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "core/base/pages.h"
#include "haul/error.h"
#include "runtime/tiers/gpu.h"
#include "runtime/tiers/offered_memory.h"

namespace haul::runtime {

namespace {

const Bytes kPage = static_cast<Bytes>(sysconf(_SC_PAGESIZE));

void* map(void* place, Bytes size, int flags, const SharedPart& shared) {
  void* const memory = mmap(place, size, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE,
                            shared.descriptor, static_cast<off_t>(shared.offset));
  if (memory == MAP_FAILED) {
    throw Error(ErrorKind::kResource, fmt::format("cannot allocate {} of RAM: {}",
                                                  format_bytes(size), std::strerror(errno)));
  }
  return memory;
}

// Where huge pages of shared memory may lie.
void* map_shared(Bytes size, const SharedPart& shared) {
  const Bytes room = size + core::kHugePage;
  void* const reserved = map(nullptr, room, MAP_PRIVATE | MAP_ANONYMOUS, {});
  auto* const begin = static_cast<std::byte*>(reserved);
  void* memory = reserved;
  std::size_t left = room;
  std::align(core::kHugePage, size, memory, left);
  try {
    map(memory, size, MAP_SHARED | MAP_FIXED, shared);
  } catch (...) {
    munmap(reserved, room);
    throw;
  }
  auto* const placed = static_cast<std::byte*>(memory);
  std::byte* const end = placed + (size + kPage - 1) / kPage * kPage;
  if (placed > begin) munmap(begin, static_cast<std::size_t>(placed - begin));
  if (end < begin + room) munmap(end, static_cast<std::size_t>(begin + room - end));
  core::join_shared_pages(memory, size);
  return memory;
}

}  // namespace

Slab::Slab(c10::Device device, Bytes size, Reservation reservation, bool pinned,
           const SharedPart& shared)
    : device_(device), size_(size), pinned_(pinned), reservation_(std::move(reservation)) {
  if (size == 0) return;
  if (!device.is_cpu()) {
    data_ = static_cast<std::byte*>(allocate_on_gpu(device.index(), size));
    return;
  }
  // Small pages keep a disk's reads waiting.
  data_ = shared.descriptor < 0 ? take_offered(size)
                                : static_cast<std::byte*>(map_shared(size, shared));
  if (data_ == nullptr) {
    data_ = static_cast<std::byte*>(map(nullptr, size, MAP_PRIVATE | MAP_ANONYMOUS, shared));
    core::prefer_huge_pages(data_, size);
  }
  if (!pinned) return;
  try {
    pin(data_, size);
  } catch (...) {
    munmap(data_, size);
    throw;
  }
}

void Slab::pin_for(int gpu, Pages pages) {
  if (data_ == nullptr) return;
  pin(data_, size_, gpu, pages);
  pinned_ = true;
}

void Slab::unshare(const SharedPart& shared) {
  if (data_ != nullptr && !pinned_) map(data_, size_, MAP_PRIVATE | MAP_FIXED, shared);
}

Slab::~Slab() {
  if (data_ == nullptr) return;
  if (!device_.is_cpu()) {
    free_on_gpu(device_.index(), data_);
    return;
  }
  if (pinned_) unpin(data_);
  munmap(data_, size_);
}

}  // namespace haul::runtime
