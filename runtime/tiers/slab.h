#pragma once

// One allocation that a whole tier of a model lies in: host memory, pinned where there is a GPU to
// copy to, or a GPU's. Carved by whoever owns it. The memory goes back when the last owner does.

#include <cstddef>
#include <memory>

#include <c10/core/Device.h>

#include "haul/bytes.h"
#include "runtime/tiers/gpu.h"
#include "runtime/tiers/ledger.h"

namespace haul::runtime {

// A part of host memory that several processes map. It may have huge pages where it begins at a
// multiple of them.
struct SharedPart {
  int descriptor = -1;  // below 0: none
  Bytes offset = 0;
};

class Slab {
 public:
  // Host memory starts at a page. Throws Error(kResource) when there is not enough.
  Slab(c10::Device device, Bytes size, Reservation reservation, bool pinned = false,
       const SharedPart& shared = {});
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  ~Slab();

  c10::Device device() const { return device_; }
  std::byte* data() const { return data_; }
  Bytes size() const { return size_; }
  // Pins host memory that is not yet, for copies to this GPU. It may be written meanwhile.
  void pin_for(int gpu, Pages pages = Pages::kFresh);
  // From now on what is written to shared memory stays with this process. Memory that is pinned
  // stays as it is: pinning would copy it.
  void unshare(const SharedPart& shared);

 private:
  c10::Device device_;
  Bytes size_;
  bool pinned_;
  Reservation reservation_;
  std::byte* data_ = nullptr;
};

}  // namespace haul::runtime
