#pragma once

// A few tasks at a time, for work that waits on the network.

#include <atomic>
#include <cstddef>
#include <functional>

namespace haul::core {

// Calls task(i, stop) for each i below `count` from at most `at_once` threads, this one among them,
// and returns when all are done. After the first exception, which is thrown on, no task begins and
// `stop` tells the running ones to end.
void run_parallel(std::size_t count, std::size_t at_once,
                  const std::function<void(std::size_t, const std::atomic<bool>& stop)>& task);

}  // namespace haul::core
