#pragma once

// Whether a range of a file lies in the page cache, asked without reading it: a read that must not
// wait (RWF_NOWAIT) does not say no and leave it at that, it starts reading the range from the
// disk. May be called from any thread.

#include <atomic>
#include <cstdint>

#include "haul/bytes.h"

namespace haul::runtime {

class PageCacheProbe {
 public:
  enum class Way {
    kAsk,     // cachestat, Linux 6.5, for files that one owns or may write; else as below
    kSample,  // two pages picked at random are read without waiting; a miss costs a page read
  };

  explicit PageCacheProbe(Way way = Way::kAsk) : asks_(way == Way::kAsk) {}

  // Whether all of [begin, end) seems to be there. An answer and no promise: pages come and go.
  bool holds(int descriptor, Bytes begin, Bytes end);

 private:
  std::atomic<bool> asks_;
  std::atomic<int> skips_{0};  // questions to answer with no, unasked, since samples missed
  std::atomic<std::uint64_t> samples_{0};
};

}  // namespace haul::runtime
