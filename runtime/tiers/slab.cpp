#include "runtime/tiers/slab.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "core/base/pages.h"
#include "haul/error.h"
#include "runtime/tiers/gpu.h"

namespace haul::runtime {

namespace {

void* map(void* place, Bytes size, int flags, const SharedPart& shared) {
  void* const memory = mmap(place, size, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE,
                            shared.descriptor, static_cast<off_t>(shared.offset));
  if (memory == MAP_FAILED) {
    throw Error(ErrorKind::kResource, fmt::format("cannot allocate {} of RAM: {}",
                                                  format_bytes(size), std::strerror(errno)));
  }
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
  const int flags = shared.descriptor < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  data_ = static_cast<std::byte*>(map(nullptr, size, flags, shared));
  core::prefer_huge_pages(data_, size);  // small ones keep a disk's reads waiting
  if (!pinned) return;
  try {
    pin(data_, size);
  } catch (...) {
    munmap(data_, size);
    throw;
  }
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
