#pragma once

// What one reader thread does: takes chunks from the queue, keeps some of them under way and leads
// each to its end: from the page cache where it lies there, else past it, else plainly.

#include <atomic>
#include <cstdint>

#include "runtime/tiers/disk_reader.h"
#include "runtime/tiers/read_queue.h"

namespace haul::runtime {

struct ReadCounters {
  std::atomic<Bytes> direct{0};
  std::atomic<Bytes> cached{0};
  std::atomic<std::uint64_t> requests{0};
};

// Returns when the queue is closed and empty. All of the arguments are shared between the threads.
void run_reader_thread(const DiskReader::Options& options, ReadQueue& queue,
                       ReadCounters& counters);

}  // namespace haul::runtime
