#pragma once

// What the kernel keeps of files in RAM.
//
// Whether a range of a file lies in the page cache, asked without reading it: a read that must not
// wait (RWF_NOWAIT) does not say no and leave it at that, it starts reading the range from the
// disk. May be called from any thread.

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <thread>
#include <vector>

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

// Brings files into the page cache while the process does other things: what was read past it would
// be read from the disk again by the next process. Nothing is done where they would take more than
// three quarters of the RAM that is available, which the kernel takes back when it is needed. A
// file that cannot be read is left out. The work ends with its owner, within a piece.
class PageCacheFiller {
 public:
  explicit PageCacheFiller(std::vector<std::filesystem::path> files);

 private:
  std::jthread thread_;
};

}  // namespace haul::runtime
