#pragma once

// A GPU whose memory somebody else has.

#include <vector>

#include <c10/cuda/CUDACachingAllocator.h>

#include "haul/error.h"
#include "runtime/tiers/gpu.h"

namespace haul::test {

// Takes a GPU's memory but for so much, and crumbs.
class Hog {
 public:
  explicit Hog(Bytes left = 0) {
    c10::cuda::CUDACachingAllocator::emptyCache();
    void* const others = left > 0 ? runtime::allocate_on_gpu(0, left) : nullptr;
    for (Bytes piece = 64 * kGiB; piece >= kMiB; piece /= 2) {
      try {
        for (;;) taken_.push_back(runtime::allocate_on_gpu(0, piece));
      } catch (const Error&) {
        continue;  // a smaller one
      }
    }
    if (others != nullptr) runtime::free_on_gpu(0, others);
  }
  Hog(const Hog&) = delete;
  Hog& operator=(const Hog&) = delete;
  ~Hog() {
    for (void* const memory : taken_) runtime::free_on_gpu(0, memory);
  }

 private:
  std::vector<void*> taken_;
};

inline Bytes free_without_pools() {
  c10::cuda::CUDACachingAllocator::emptyCache();
  return runtime::free_of_gpu(0);
}

}  // namespace haul::test
