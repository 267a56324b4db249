#pragma once

// The reads that one thread has under way. Two implementations: io_uring, and pread. An object
// belongs to the thread that made it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "haul/bytes.h"

namespace haul::runtime {

class ReadRing {
 public:
  struct Ended {
    void* tag = nullptr;
    std::int64_t result = 0;  // bytes read, or the negative errno
  };

  virtual ~ReadRing() = default;

  // How many reads may be under way at once.
  virtual int depth() const = 0;
  // REQUIRES: fewer than depth() are under way. `to` is written until the read has ended.
  virtual void begin(int descriptor, Bytes offset, std::span<std::byte> to, void* tag) = 0;
  // Appends the reads that have ended to `ended`. With `wait`, and when a read is under way, it
  // waits for one.
  virtual void collect(bool wait, std::vector<Ended>& ended) = 0;
};

// Null where io_uring is missing from the kernel, forbidden, or was not built.
std::unique_ptr<ReadRing> make_uring(int depth);

// Reads in begin(), one at a time.
std::unique_ptr<ReadRing> make_plain_ring();

}  // namespace haul::runtime
