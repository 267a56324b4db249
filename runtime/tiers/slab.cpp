#include "runtime/tiers/slab.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "haul/error.h"
#include "runtime/tiers/gpu.h"

namespace haul::runtime {

Slab::Slab(c10::Device device, Bytes size, Reservation reservation, bool pinned)
    : device_(device), size_(size), pinned_(pinned), reservation_(std::move(reservation)) {
  if (size == 0) return;
  if (!device.is_cpu()) {
    data_ = static_cast<std::byte*>(allocate_on_gpu(device.index(), size));
    return;
  }
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error(ErrorKind::kResource, fmt::format("cannot allocate {} of RAM: {}",
                                                  format_bytes(size), std::strerror(errno)));
  }
  data_ = static_cast<std::byte*>(memory);
  if (!pinned) return;
  try {
    pin(data_, size);
  } catch (...) {
    munmap(data_, size);
    throw;
  }
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
