#pragma once

// One allocation that a whole tier of a model lies in: host memory, pinned where there is a GPU to
// copy to, or a GPU's. Carved by whoever owns it. The memory goes back when the last owner does.

#include <cstddef>
#include <memory>

#include <c10/core/Device.h>

#include "haul/bytes.h"
#include "runtime/tiers/ledger.h"

namespace haul::runtime {

class Slab {
 public:
  // Host memory starts at a page. Throws Error(kResource) when there is not enough.
  Slab(c10::Device device, Bytes size, Reservation reservation, bool pinned = false);
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  ~Slab();

  c10::Device device() const { return device_; }
  std::byte* data() const { return data_; }
  Bytes size() const { return size_; }

 private:
  c10::Device device_;
  Bytes size_;
  bool pinned_;
  Reservation reservation_;
  std::byte* data_ = nullptr;
};

}  // namespace haul::runtime
