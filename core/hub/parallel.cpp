#include "core/hub/parallel.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace haul::core {

void run_parallel(std::size_t count, std::size_t at_once,
                  const std::function<void(std::size_t, const std::atomic<bool>& stop)>& task) {
  std::atomic<bool> stop{false};
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr first_error;
  const auto work = [&] {
    for (std::size_t i = next++; i < count && !stop; i = next++) {
      try {
        task(i, stop);
      } catch (...) {
        const std::scoped_lock lock(mutex);
        if (!first_error) first_error = std::current_exception();
        stop = true;
      }
    }
  };
  std::vector<std::jthread> workers;
  for (std::size_t i = 1; i < std::min(at_once, count); ++i) workers.emplace_back(work);
  work();
  workers.clear();  // joins
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace haul::core
